/* The table of versions: how they get into it, and how they leave it. */
#include "registry_internal.h"
#include "../../base/clock.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct registry *registry_new(void)
{
	struct registry *registry = calloc(1, sizeof(*registry));

	if (registry)
		registry->fds_max = STORE_FDS_MAX;
	return registry;
}

void registry_set_fds_max(struct registry *registry, uint64_t most)
{
	registry->fds_max = most < STORE_FDS_MAX ? most : STORE_FDS_MAX;
}

uint64_t registry_fds_max(const struct registry *registry)
{
	return registry->fds_max;
}

uint64_t registry_fds(const struct registry *registry)
{
	return registry->counts.fds + registry->other_fds;
}

int registry_take_fds(struct registry *registry, uint64_t count, struct error *error)
{
	if (registry_fds(registry) + count > registry->fds_max)
		return error_set(error, -EDQUOT, "retire a version, or " STORE_FDS_REMEDY,
				 "%llu descriptors do not fit: %llu of the %llu that can be kept are taken",
				 (unsigned long long)count, (unsigned long long)registry_fds(registry),
				 (unsigned long long)registry->fds_max);
	registry->other_fds += count;
	return 0;
}

void registry_adopt_fds(struct registry *registry, uint64_t count)
{
	registry->other_fds += count;
}

void registry_give_fds(struct registry *registry, uint64_t count)
{
	registry->other_fds -= count;
}

struct registry_counts registry_counts(const struct registry *registry)
{
	return registry->counts;
}

/* ---- adding ---- */

static int check_names(const char *model, const char *tag, struct error *error)
{
	const char *wrong = name_wrong(model);

	if (wrong)
		return error_set(error, -EINVAL, NULL, "the model's name %s", wrong);
	wrong = name_wrong(tag);
	if (wrong)
		return error_set(error, -EINVAL, NULL, "the tag %s", wrong);
	if (strcmp(tag, ALIAS_CURRENT) == 0 || strcmp(tag, ALIAS_PREVIOUS) == 0)
		return error_set(error, -EINVAL,
				 "current and previous are aliases of every model; take another tag",
				 "\"%s\" can't be a tag", tag);
	return 0;
}

/* 0 with the failed version whose tag it is, or NULL. */
static int check_free(const struct registry *registry, const char *name, const char *tag,
		      struct version **ret_failed, struct error *error)
{
	const struct model *model = model_find(registry, name);
	const struct named *named = model ? named_find(model, tag) : NULL;

	*ret_failed = NULL;
	if (!named)
		return 0;
	if (named->alias)
		return error_set(error, -EEXIST, "tags and aliases share one name space; take another tag",
				 "\"%s\" is an alias of model \"%s\"", tag, name);
	if (named->version->state != VERSION_FAILED)
		return error_set(
			error, -EEXIST, "a version never changes: take another tag, or retire this one first",
			"%s@%s is there already (%s)", name, tag, version_state_name(named->version->state));
	*ret_failed = named->version;
	return 0;
}

int registry_tag_allowed(const struct registry *registry, const struct ref *name, struct error *error)
{
	struct version *failed;
	int r = check_names(name->model, name->name, error);

	return r < 0 ? r : check_free(registry, name->model, name->name, &failed, error);
}

static int check_world(uint32_t world, struct error *error)
{
	if (world >= 1 && world <= PARTS_PER_VERSION_MAX)
		return 0;
	return error_set(error, -EINVAL, NULL, "world is %u, not 1 to %u", world, PARTS_PER_VERSION_MAX);
}

static int registry_check_room(const struct registry *registry, struct error *error)
{
	if (registry->counts.versions >= VERSIONS_MAX)
		return error_set(error, -EDQUOT, "retire some", "there are %u versions, no more are taken",
				 VERSIONS_MAX);
	return 0;
}

static int check_nameless_room(const struct registry *registry, struct error *error)
{
	if (registry->counts.nameless < NAMELESS_MAX)
		return 0;
	return error_set(error, -EDQUOT, "let some of them go",
			 "there are %u versions without a name, no more are taken", NAMELESS_MAX);
}

/* With room for one replica, so that the first never fails. NULL: out of memory. */
static struct version_record *record_new(const char *tag, uint32_t world, uid_t owner)
{
	struct version_record *record = calloc(1, sizeof(*record));
	struct replica *replicas = record ? calloc(1, sizeof(*replicas)) : NULL;

	if (!replicas) {
		free(record);
		return NULL;
	}
	record->version.replicas = replicas;
	snprintf(record->version.tag, sizeof(record->version.tag), "%s", tag);
	record->version.world = world;
	record->version.owner = owner;
	return record;
}

static void record_free(struct version_record *record)
{
	free(record->version.joiners);
	free(record->version.replicas);
	free(record);
}

/* Into the tables of ids. */
static int record_hash(struct registry *registry, struct version_record *record)
{
	struct version *version = &record->version;

	HASH_ADD_KEYPTR(by_id, registry->by_id, &version->id, sizeof(version->id), record);
	if (!record->by_id.tbl)
		return -ENOMEM;
	HASH_ADD_KEYPTR(by_publish, registry->by_publish, &version->publish, sizeof(version->publish), record);
	if (!record->by_publish.tbl) {
		HASH_DELETE(by_id, registry->by_id, record);
		return -ENOMEM;
	}
	return 0;
}

static void record_unhash(struct registry *registry, struct version_record *record)
{
	HASH_DELETE(by_id, registry->by_id, record);
	HASH_DELETE(by_publish, registry->by_publish, record);
}

static int record_insert(struct registry *registry, const char *name, struct version_record *record)
{
	struct version *version = &record->version;
	struct model *model = model_find_or_add(registry, name);

	if (!model)
		return -ENOMEM;
	if (record_hash(registry, record) < 0)
		goto drop_model;
	if (!version->gave_name_up) {
		record->named = named_take(model, version->tag);
		if (!record->named)
			goto unhash;
		record->named->version = version;
	}
	version->model = model;
	version->previous_in_model = model->last;
	if (model->last)
		model->last->next_in_model = version;
	else
		model->first = version;
	model->last = version;
	version_begin_living(version);
	return 0;

unhash:
	record_unhash(registry, record);
drop_model:
	model_drop_unused(model);
	return -ENOMEM;
}

/* With new ids. */
static int record_begin(const char *tag, uint32_t world, uid_t owner, struct version_record **ret,
			struct error *error)
{
	struct version_record *record = record_new(tag, world, owner);
	int r;

	if (!record)
		return out_of_memory(error);
	r = version_id_new(&record->version.id);
	if (r == 0)
		r = version_id_new(&record->version.publish);
	if (r < 0) {
		record_free(record);
		return error_set(error, r, NULL, "no random numbers: %s", strerror(-r));
	}
	record->version.created_ms = clock_wall_ms();
	*ret = record;
	return 0;
}

/* Inserts it, or frees it. */
static int record_enter(struct registry *registry, const char *model, struct version_record *record,
			struct error *error)
{
	if (record_insert(registry, model, record) == 0)
		return 0;
	record_free(record);
	return out_of_memory(error);
}

int registry_add(struct registry *registry, const struct version_wish *wish, struct version **ret_version,
		 struct error *error)
{
	struct version_record *record;
	struct version *failed;
	int r = check_names(wish->model, wish->tag, error);

	if (r == 0)
		r = check_free(registry, wish->model, wish->tag, &failed, error);
	if (r == 0)
		r = check_world(wish->world, error);
	if (r == 0)
		r = registry_check_room(registry, error);
	if (r == 0)
		r = record_begin(wish->tag, wish->world, wish->owner, &record, error);
	if (r == 0)
		r = record_enter(registry, wish->model, record, error);
	if (r < 0)
		return r;
	if (failed)
		version_forget(failed);
	record->version.cache = wish->cache;
	*ret_version = &record->version;
	return 0;
}

int registry_add_nameless(struct registry *registry, uid_t owner, struct version **ret_version,
			  struct error *error)
{
	struct version_record *record;
	char model[NAME_BYTES_MAX + 1];
	int r = check_nameless_room(registry, error);

	if (r == 0)
		r = record_begin("", 1, owner, &record, error);
	if (r < 0)
		return r;
	nameless_model(owner, model);
	hex128_format(record->version.id.bytes, record->version.tag);
	r = record_enter(registry, model, record, error);
	if (r == 0)
		*ret_version = &record->version;
	return r;
}

/* ---- who may take part in a publish ---- */

void joiners_set(struct joiners *joiners, const struct join_params *params)
{
	*joiners = (struct joiners){.uid_count = params->uids.count, .gid_count = params->gids.count};
	for (uint32_t i = 0; i < params->uids.count; i++)
		joiners->uids[i] = params->uids.items[i];
	for (uint32_t i = 0; i < params->gids.count; i++)
		joiners->gids[i] = params->gids.items[i];
}

struct join_params joiners_tell(const struct joiners *joiners)
{
	return (struct join_params){.uids = {joiners->uids, joiners->uid_count},
				    .gids = {joiners->gids, joiners->gid_count}};
}

bool joiners_have_uid(const struct joiners *joiners, uid_t uid)
{
	uint32_t i = 0;

	while (i < joiners->uid_count && joiners->uids[i] != uid)
		i++;
	return i < joiners->uid_count;
}

int version_set_joiners(struct version *version, const struct joiners *joiners)
{
	struct joiners *copy = malloc(sizeof(*copy));

	if (!copy)
		return -ENOMEM;
	*copy = *joiners;
	free(version->joiners);
	version->joiners = copy;
	return 0;
}

/* ---- adopting ---- */

static int check_unknown(const struct registry *registry, const char *name, const struct version *like,
			 struct error *error)
{
	const struct model *model = model_find(registry, name);
	struct version_record *same;

	if (model && !like->gave_name_up && named_find(model, like->tag))
		return error_set(error, -EEXIST, NULL, "%s@%s is there already", name, like->tag);
	HASH_FIND(by_id, registry->by_id, &like->id, sizeof(like->id), same);
	if (same)
		return error_set(error, -EEXIST, NULL, "%s@%s has the id of %s@%s", name, like->tag,
				 same->version.model->name, same->version.tag);
	if (registry_by_publish(registry, &like->publish))
		return error_set(error, -EEXIST, NULL, "the publish of %s@%s made another version too", name,
				 like->tag);
	return 0;
}

static int check_adoption(const struct registry *registry, const char *model, const struct version *like,
			  struct error *error)
{
	const bool nameless = name_is_nameless(model);
	int r = nameless ? 0 : check_names(model, like->tag, error);

	if (r == 0)
		r = check_world(like->world, error);
	if (r == 0)
		r = nameless ? check_nameless_room(registry, error) : registry_check_room(registry, error);
	return r < 0 ? r : check_unknown(registry, model, like, error);
}

/* Copies what a snapshot says of a version, but for its tag, world, owner and joiners. */
static void version_set_like(struct version *version, const struct version *like)
{
	version->id = like->id;
	version->publish = like->publish;
	version->by_operator = like->by_operator;
	version->state = like->state;
	version->created_ms = like->created_ms;
	version->ready_ms = like->ready_ms;
	version->error = like->error;
	version->force_at_ms = like->force_at_ms;
	version->forced = like->forced;
	version->cache = like->cache;
	version->gave_name_up = like->gave_name_up;
	version->expire_at_ms = like->expire_at_ms;
	version->tier = version->moving_to = like->tier;
	version->restores = like->restores;
	version->last_used_ms = like->last_used_ms;
	version->stale_leases = like->stale_leases;
}

int registry_adopt(struct registry *registry, const char *model, const struct version *like,
		   struct version **ret_version, struct error *error)
{
	const struct model *there = model_find(registry, model);
	const struct model_owner oldest = there ? model_oldest(there) : (struct model_owner){0};
	struct version_record *record;
	struct version *version;
	int r = check_adoption(registry, model, like, error);

	if (r < 0)
		return r;
	record = record_new(like->tag, like->world, like->owner);
	if (!record)
		return out_of_memory(error);
	version = &record->version;
	version_set_like(version, like);
	if ((like->joiners && version_set_joiners(version, like->joiners) < 0) ||
	    record_insert(registry, model, record) < 0) {
		record_free(record);
		return out_of_memory(error);
	}
	registry->counts.demoted += !version_is_resident(like);
	if (version->state == VERSION_FAILED) {
		version_keep_failed(version);
	} else {
		if (model_owner_equal(&version->model->owner, &oldest)) /* nothing else has said it */
			version->model->owner = model_oldest(version->model);
		version->model->is_reserved = false;
	}
	*ret_version = version;
	return 0;
}

/* ---- forgetting ---- */

void version_forget(struct version *version)
{
	struct version_record *record = record_of(version);
	struct model *model = version->model;
	struct registry *registry = model->registry;

	version_forget_revoked(version);
	if (version->state == VERSION_FAILED)
		version_unlist_failed(version);
	else
		version_end_living(version);
	version_uncount(version);
	version_charges_end(&record->charges);
	record_unhash(registry, record);
	if (record->named)
		named_drop(model, record->named);
	if (version->previous_in_model)
		version->previous_in_model->next_in_model = version->next_in_model;
	else
		model->first = version->next_in_model;
	if (version->next_in_model)
		version->next_in_model->previous_in_model = version->previous_in_model;
	else
		model->last = version->previous_in_model;
	model_drop_unused(model);

	registry->counts.pins -= version->pin_count;
	free(version->pins);
	for (uint32_t i = 0; i < version->replica_count; i++)
		replica_clear(&version->replicas[i]);
	free(version->replicas);
	free(version->told);
	free(version->promotion_error);
	description_free(version->description);
	version_free_taint(version);
	free(version->joiners);
	free(record);
}

void version_keep_failed(struct version *version)
{
	struct version *oldest = version_list_failed(version);

	if (oldest)
		version_forget(oldest);
}

void registry_forget_failed(struct registry *registry, struct version *version)
{
	assert(version->model->registry == registry && version->state == VERSION_FAILED);
	version_forget(version);
}
