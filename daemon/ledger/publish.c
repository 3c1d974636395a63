#include "publish.h"
#include "registry_internal.h"
#include "../../proto/bytes.h"

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
static void close_given(const struct publish_part *part)
{
	if (part->given && part->given_segment >= 0)
		close(part->given_segment);
	if (part->given && part->given_index >= 0)
		close(part->given_index);
}

static void publish_free(struct publish *publish)
{
	quota_release(&publish->charge);
	for (uint32_t i = 0; i < publish->part_count; i++)
		close_given(&publish->parts[i]);
	free(publish->groups);
	free(publish->parts);
	free(publish);
}

/* False: out of memory. */
static bool take_groups(struct publish *publish, const struct publish_request *request)
{
	if (request->group_count == 0)
		return true;
	publish->groups = calloc(request->group_count, sizeof(*publish->groups));
	if (!publish->groups)
		return false;
	memcpy(publish->groups, request->groups, request->group_count * sizeof(*publish->groups));
	publish->group_count = request->group_count;
	return true;
}

static struct publish *publish_new(const struct publish_request *request)
{
	struct publish *publish = calloc(1, sizeof(*publish));

	if (!publish)
		return NULL;
	publish->parts = calloc(PARTS_PER_VERSION_MAX, sizeof(*publish->parts));
	if (!publish->parts || !take_groups(publish, request)) {
		publish_free(publish);
		return NULL;
	}
	snprintf(publish->alias, sizeof(publish->alias), "%s", request->alias);
	publish->has_expect = request->expect != NULL;
	if (request->expect)
		publish->expect = *request->expect;
	publish->retire_old = request->retire_old;
	return publish;
}

static int check_alias(const struct registry *registry, const struct publish_request *request,
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
		.silence_ms = request->silence_ms,
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

static int charge_new(struct publish *publish, struct version_charges *charges, struct quota *quota,
		      const struct publish_request *request, struct error *error)
{
	int r = quota ? quota_charge(quota, request->uid, QUOTA_PUBLISHES, &publish->charge, error) : 0;

	return r < 0 || request->by_operator
		       ? r
		       : version_charges_begin(charges, quota, request->uid, !request->model, error);
}

static int add_version(struct registry *registry, const struct publish_request *request,
		       struct version **ret_version, struct error *error)
{
	const struct version_wish wish = {request->model, request->tag, request->world, request->uid};
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

static int begin_new(struct publish_table *table, struct registry *registry, struct quota *quota,
		     const struct publish_request *request, struct publish_part **ret_part, struct error *error)
{
	struct version_charges charges = {0};
	struct budget_charge charge = {0};
	struct publish *publish;
	int r = check_alias(registry, request, error);

	if (r < 0)
		return r;
	if (request->rank >= request->world)
		return error_set(error, -EINVAL, NULL, "rank %u of a world of %u", request->rank,
				 request->world);
	publish = publish_new(request);
	if (!publish)
		return out_of_memory(error);
	r = charge_new(publish, &charges, quota, request, error);
	if (r == 0)
		r = charge_bytes(request, quota, request->uid, request->by_operator, &charge, error);
	if (r == 0)
		r = add_version(registry, request, &publish->version, error);
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

static int join(struct publish_table *table, struct quota *quota, const struct publish_request *request,
		struct publish_part **ret_part, struct error *error)
{
	struct publish *publish = publish_find(table, request->join);
	struct budget_charge charge = {0};
	int r;

	if (!publish)
		return publish_unknown(request->join, error);
	r = check_join(publish, request, error);
	if (r == 0)
		r = charge_bytes(request, quota, publish->version->owner, publish->version->by_operator,
				 &charge, error);
	if (r == 0)
		r = add_part(publish, request, &charge, ret_part, error);
	budget_release(&charge);
	return r;
}

int publish_begin(struct publish_table *table, struct registry *registry, struct quota *quota,
		  const struct publish_request *request, struct publish_part **ret_part, struct error *error)
{
	if (request->join)
		return join(table, quota, request, ret_part, error);
	return begin_new(table, registry, quota, request, ret_part, error);
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

/* ---- commit and check ---- */

static int other_content(const struct version *version, const struct replica *replica,
			 const struct digest *found, const struct digest *promised, struct error *error)
{
	char is[VERSION_ID_TEXT], said[VERSION_ID_TEXT];

	hex128_format(found->bytes, is);
	hex128_format(promised->bytes, said);
	return error_set(error, -EBADMSG, NULL,
			 "rank %u of %s@%s on %s has the content %s, not %s as committed", replica->rank,
			 version->model->name, version->tag, replica->device->id, is, said);
}

int publish_commit(struct publish *publish, struct publish_part *part, void *publisher,
		   const struct digest *content, struct error *error)
{
	struct version *version = publish->version;
	struct replica *replica = &version->replicas[part->replica];

	if (replica->committed) {
		if (!digest_equal(&replica->promised, content))
			return other_content(version, replica, &replica->promised, content, error);
		return 0;
	}
	if (part->publisher != publisher)
		return error_set(error, -EACCES, "who began a part commits it",
				 "rank %u of %s@%s on %s is another publisher's", replica->rank,
				 version->model->name, version->tag, replica->device->id);
	if (replica->checked && !digest_equal(&replica->content, content))
		return other_content(version, replica, &replica->content, content, error);
	replica->committed = true;
	replica->promised = *content;
	part->publisher = NULL;
	if (version_committed(version))
		version_move(version, VERSION_CHECKING);
	return 0;
}

static uint32_t count_new(const struct publish_checked *checked)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < checked->part.segment_count; i++)
		count += !checked->resident[i];
	return count;
}

static int check_room(const struct registry *registry, const struct publish_checked *checked,
		      struct error *error)
{
	uint64_t fds = registry_counts(registry).fds, index_bytes = checked->part.index.bytes;
	uint32_t count = count_new(checked);
	char wanted[BYTES_TEXT], held[BYTES_TEXT], most[BYTES_TEXT];

	if (fds + count + 1 > registry_fds_max(registry))
		return error_set(
			error, -EDQUOT,
			registry_fds_max(registry) < STORE_FDS_MAX
				? "retire a version, or raise FileDescriptorStoreMax= and FDSTORE= of "
				  "gpuwmd's unit, or --store-max of gpuwm-keeper"
				: "retire a version, or make fewer and larger segments",
			"%u segment%s and an index do not fit: %llu of the %llu descriptors that can be kept are taken",
			count, count == 1 ? "" : "s", (unsigned long long)fds,
			(unsigned long long)registry_fds_max(registry));
	if (index_bytes > INDICES_BYTES_MAX - registry_counts(registry).index_bytes)
		return error_set(error, -EDQUOT, "retire a version, or carry fewer files and metadata",
				 "an index of %s; %s of %s for indices are held",
				 bytes_format(index_bytes, wanted),
				 bytes_format(registry_counts(registry).index_bytes, held),
				 bytes_format(INDICES_BYTES_MAX, most));
	return 0;
}

static int check_segments(const struct publish_checked *checked, const struct budget_charge *charge,
			  struct error *error)
{
	char granted[BYTES_TEXT];
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < checked->part.segment_count; i++) {
		uint64_t has = checked->part.segments[i].bytes;

		if (checked->resident[i] && checked->resident[i]->bytes != has)
			return error_set(error, -EBADMSG, NULL,
					 "segment %u has %llu bytes, the resident one in its place has %llu", i,
					 (unsigned long long)has,
					 (unsigned long long)checked->resident[i]->bytes);
		if (!checked->resident[i] &&
		    (__builtin_add_overflow(bytes, has, &bytes) || bytes > charge->bytes))
			return error_set(error, -EBADMSG,
					 "publish_begin's bytes are the most that they may hold",
					 "the segments exceed the %s that were granted on %s",
					 bytes_format(charge->bytes, granted), charge->device->id);
	}
	return 0;
}

/* The segments of the part, each with nobody who uses it unless it is resident. */
struct made {
	struct segment_hold *holds;
	struct segment *segments[PART_SEGMENTS_MAX];
	uint32_t count;
};

static void made_clear(struct made *made)
{
	for (uint32_t i = 0; i < made->count; i++)
		segment_free_unused(made->segments[i]);
	free(made->holds);
}

static int make_segments(const struct publish_checked *checked, struct made *ret, struct error *error)
{
	const struct part *part = &checked->part;

	ret->count = 0;
	ret->holds = calloc((size_t)part->segment_count + 1, sizeof(*ret->holds));
	for (uint32_t i = 0; ret->holds && i < part->segment_count; i++) {
		ret->segments[i] = checked->resident[i];
		if (!ret->segments[i])
			ret->segments[i] = segment_new(part->segments[i].fd, part->segments[i].bytes, 0);
		if (!ret->segments[i])
			break;
		ret->count++;
	}
	if (ret->holds && ret->count == part->segment_count)
		return 0;
	made_clear(ret);
	return out_of_memory(error);
}

/* A new segment gets its share of the charge, a resident one has its own. */
static void take_segment(struct version *version, struct replica *replica, const struct made *made, uint32_t i)
{
	struct segment *segment = made->segments[i];

	if (!segment->holds)
		budget_split(&replica->charge, segment->bytes, &segment->charge);
	segment_hold(&replica->segments[i], segment, version);
	replica->bytes += segment->bytes;
}

static void take(struct version *version, struct replica *replica, struct publish_checked *checked,
		 const struct made *made)
{
	struct part *part = &checked->part;

	replica->checked = true;
	replica->index = (struct held_fd){.fd = part->index.fd, .bytes = part->index.bytes};
	part->index.fd = -1;
	replica->segments = made->holds;
	replica->segment_count = made->count;
	for (uint32_t i = 0; i < made->count; i++) {
		take_segment(version, replica, made, i);
		if (!checked->resident[i])
			part->segments[i].fd = -1;
	}
	replica->tensors = checked->tensors;
	replica->layout = checked->layout;
	replica->content = checked->content;
	budget_release(&replica->charge);
}

int publish_checked(struct registry *registry, struct publish *publish, struct publish_part *part,
		    struct publish_checked *checked, struct error *error)
{
	struct version *version = publish->version;
	struct replica *replica = &version->replicas[part->replica];
	struct made made;
	int r;

	if (replica->checked)
		return error_set(error, -EEXIST, NULL, "rank %u of %s@%s on %s was checked already",
				 replica->rank, version->model->name, version->tag, replica->device->id);
	r = check_room(registry, checked, error);
	if (r == 0)
		r = check_segments(checked, &replica->charge, error);
	if (r < 0)
		return r;
	if (replica->committed && !digest_equal(&replica->promised, &checked->content))
		return other_content(version, replica, &checked->content, &replica->promised, error);
	r = make_segments(checked, &made, error);
	if (r < 0)
		return r;
	r = version_charge_part(version, count_new(checked) + 1, checked->part.index.bytes, error);
	if (r < 0) {
		made_clear(&made);
		return r;
	}
	take(version, replica, checked, &made);
	version_count(version, replica);
	return 0;
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
