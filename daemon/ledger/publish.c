#include "publish.h"
#include "companion.h"
#include "registry_internal.h"
#include "relocation.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A list: each open publish holds a loader process, so they are few. */
struct publish_table {
	struct publish *first;
	uint64_t count;
};

struct publish_table *publish_table_new(void)
{
	return calloc(1, sizeof(struct publish_table));
}

struct publish_table *publish_table_free(struct publish_table *table)
{
	while (table && table->first)
		publish_end(table, table->first);
	free(table);
	return NULL;
}

uint64_t publish_count(const struct publish_table *table)
{
	return table->count;
}

struct publish *publish_next(const struct publish_table *table, const struct publish *after)
{
	return after ? after->next : table->first;
}

struct publish *publish_find(const struct publish_table *table, const struct version_id *id)
{
	struct publish *publish = table->first;

	while (publish && !version_id_equal(&publish->id, id))
		publish = publish->next;
	return publish;
}

int publish_unknown(const struct version_id *id, struct error *error)
{
	char text[VERSION_ID_TEXT];

	hex128_format(id->bytes, text);
	return error_set(error, -ENOENT,
			 "it was completed, failed, never was, or its first begin does not name this user",
			 "no open publish %s", text);
}

struct publish_part *publish_part_find(struct publish *publish, uint32_t rank, const struct device *device)
{
	for (uint32_t i = 0; i < publish->part_count; i++) {
		const struct replica *replica = &publish->version->replicas[publish->parts[i].replica];
		if (replica->rank == rank && replica->device == device)
			return &publish->parts[i];
	}
	return NULL;
}

/* ---- begin ---- */

/* They are small: this does not take long. */
void given_close(const struct given *given)
{
	if (given->segment < 0)
		return;
	close(given->segment);
	close(given->index);
}

static void publish_free(struct publish *publish)
{
	quota_release(&publish->charge);
	for (uint32_t i = 0; i < publish->part_count; i++)
		given_close(&publish->parts[i].given);
	free(publish->groups);
	free(publish->parts);
	free(publish);
}

static struct publish *publish_new(const struct publish_request *request)
{
	struct publish *publish = calloc(1, sizeof(*publish));

	if (!publish)
		return NULL;
	publish->parts = calloc(PARTS_PER_VERSION_MAX, sizeof(*publish->parts));
	if (publish->parts && request->group_count > 0)
		publish->groups = calloc(request->group_count, sizeof(*publish->groups));
	if (!publish->parts || (request->group_count > 0 && !publish->groups)) {
		publish_free(publish);
		return NULL;
	}
	if (publish->groups)
		memcpy(publish->groups, request->groups, request->group_count * sizeof(*publish->groups));
	publish->group_count = request->group_count;
	snprintf(publish->alias, sizeof(publish->alias), "%s", request->alias);
	publish->has_expect = request->expect != NULL;
	if (request->expect)
		publish->expect = *request->expect;
	publish->retire_old = request->retire_old;
	return publish;
}

static int publish_check_alias(const struct registry *registry, const struct publish_request *request,
			       struct error *error)
{
	if (request->alias[0] == '\0')
		return 0;
	if (strcmp(request->alias, request->tag) == 0)
		return error_set(error, -EINVAL, "tags and aliases share one name space; take another alias",
				 "the alias \"%s\" is the tag itself", request->alias);
	return registry_alias_allowed(registry, request->model, request->alias, error);
}

/* Moves the charge in. The version has room for it. */
static int add_part(struct publish *publish, const struct publish_request *request,
		    struct budget_charge *charge, struct publish_part **ret_part, struct error *error)
{
	struct publish_part *part = &publish->parts[publish->part_count];
	uint32_t position;
	int r = version_add_replica(publish->version, request->rank, request->device, charge, &position, error);

	if (r < 0)
		return r;
	*part = (struct publish_part){
		.publish = publish,
		.replica = position,
		.publisher = request->publisher,
		.beginner = request->publisher,
		.heard_ms = request->heard_ms,
		.given = {-1, -1},
		.silence_ms = request->silence_ms,
		.fds = part_fds(request->segments),
	};
	publish->part_count++;
	*ret_part = part;
	return 0;
}

/* The bytes, of the device and of the version's owner. On errors nothing is charged. */
static int charge_bytes(const struct publish_request *request, struct quota *quota, uid_t owner,
			bool by_operator, struct budget_charge *ret, struct error *error)
{
	int r = budget_charge(request->device, request->bytes, ret, error);

	if (r == 0 && !by_operator)
		r = budget_charge_user(ret, quota, owner, error);
	if (r < 0)
		budget_release(ret);
	return r;
}

static int publish_add_version(struct registry *registry, const struct publish_request *request,
			       struct version **ret_version, struct error *error)
{
	const struct version_wish wish = {request->model, request->tag, request->world, request->uid,
					  request->cache};
	struct version *version;
	int r;

	if (request->model)
		r = registry_add(registry, &wish, &version, error);
	else
		r = registry_add_nameless(registry, request->uid, &version, error);
	if (r < 0)
		return r;
	if (request->joiners && version_set_joiners(version, request->joiners) < 0) {
		version_forget(version);
		return out_of_memory(error);
	}
	*ret_version = version;
	return 0;
}

int publish_check_operators(const struct quota *quota, const struct publish_request *request,
			    struct error *error)
{
	int r = quota_check_operators(quota, request->model ? QUOTA_VERSIONS : QUOTA_NAMELESS, 1, error);

	return r < 0 ? r : quota_check_operators(quota, QUOTA_FDS, part_fds(request->segments), error);
}

static int publish_begin_new(struct publish_table *table, struct registry *registry, struct quota *quota,
			     const struct publish_request *request, struct publish_part **ret_part,
			     struct error *error)
{
	struct version_charges charges = {0};
	struct budget_charge charge = {0};
	struct publish *publish;
	int r = publish_check_alias(registry, request, error);

	if (r == 0)
		r = companion_check(registry, request->model, &request->cache.companion_of, request->bytes,
				    error);
	if (r < 0)
		return r;
	if (request->rank >= request->world)
		return error_set(error, -EINVAL, NULL, "rank %u of a world of %u", request->rank,
				 request->world);
	publish = publish_new(request);
	if (!publish)
		return out_of_memory(error);
	if (quota)
		r = quota_charge(quota, request->uid, QUOTA_PUBLISHES, &publish->charge, error);
	if (r == 0 && request->by_operator && quota)
		r = publish_check_operators(quota, request, error);
	if (r == 0 && !request->by_operator)
		r = version_charges_begin(&charges, quota, request->uid, !request->model, error);
	if (r == 0)
		r = quota_grow(&charges.fds, part_fds(request->segments), error);
	if (r == 0)
		r = charge_bytes(request, quota, request->uid, request->by_operator, &charge, error);
	if (r == 0)
		r = publish_add_version(registry, request, &publish->version, error);
	if (r < 0) {
		budget_release(&charge);
		version_charges_end(&charges);
		publish_free(publish);
		return r;
	}
	publish->version->by_operator = request->by_operator;
	record_of(publish->version)->charges = charges;
	publish->id = publish->version->publish;
	r = add_part(publish, request, &charge, ret_part, error);
	assert(r == 0); /* a new version's first part was checked, and has its room */
	publish->next = table->first;
	table->first = publish;
	table->count++;
	return r;
}

static int check_join(const struct publish *publish, const struct publish_request *request, struct error *error)
{
	const struct version *version = publish->version;
	const char *model = version->model->name;

	if (strcmp(model, request->model) != 0 || strcmp(version->tag, request->tag) != 0)
		return error_set(error, -EINVAL, NULL, "this publish makes %s@%s, not %s@%s", model,
				 version->tag, request->model, request->tag);
	if (version->world != request->world)
		return error_set(error, -EINVAL, NULL, "the world of %s@%s is %u, not %u", model, version->tag,
				 version->world, request->world);
	if (request->alias[0] != '\0' && strcmp(publish->alias, request->alias) != 0)
		return error_set(error, -EINVAL, "the first begin says it",
				 "the alias of %s@%s is \"%s\", not \"%s\"", model, version->tag,
				 publish->alias, request->alias);
	return 0;
}

static int publish_join(struct publish_table *table, const struct registry *registry, struct quota *quota,
			const struct publish_request *request, struct publish_part **ret_part,
			struct error *error)
{
	struct publish *publish = publish_find(table, request->join);
	struct budget_charge charge = {0};
	int r;

	if (!publish)
		return publish_unknown(request->join, error);
	r = check_join(publish, request, error);
	if (r == 0)
		r = companion_check(registry, request->model, &publish->version->cache.companion_of,
				    request->bytes, error);
	if (r == 0)
		r = charge_bytes(request, quota, publish->version->owner, publish->version->by_operator,
				 &charge, error);
	if (r == 0)
		r = version_charge_fds(publish->version, part_fds(request->segments), error);
	if (r == 0) {
		r = add_part(publish, request, &charge, ret_part, error);
		if (r < 0)
			version_uncharge_fds(publish->version, part_fds(request->segments));
	}
	budget_release(&charge);
	return r;
}

int publish_begin(struct publish_table *table, struct registry *registry, struct quota *quota,
		  const struct publish_request *request, struct publish_part **ret_part, struct error *error)
{
	if (request->join)
		return publish_join(table, registry, quota, request, ret_part, error);
	return publish_begin_new(table, registry, quota, request, ret_part, error);
}

bool publish_has_publisher(const struct publish *publish, const void *publisher)
{
	for (uint32_t i = 0; i < publish->part_count; i++) {
		if (publish->parts[i].publisher == publisher)
			return true;
	}
	return false;
}

bool publish_leave(struct publish *publish, const void *beginner)
{
	bool left = false, others = false;

	for (uint32_t i = 0; i < publish->part_count; i++) {
		struct publish_part *part = &publish->parts[i];

		left = left || part->beginner == beginner;
		if (part->beginner == beginner)
			part->beginner = NULL;
		others = others || part->beginner;
	}
	return left && !others;
}

void publish_end(struct publish_table *table, struct publish *publish)
{
	struct publish **link = &table->first;

	while (*link != publish)
		link = &(*link)->next;
	*link = publish->next;
	table->count--;
	publish_free(publish);
}
