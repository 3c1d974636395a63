/* The versions of a state, with their parts and descriptors. */
#include "../ledger/relocation.h"
#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- parts ---- */

/* Fills part->segments, which are the table's; or part->sizes, if the version lies on files. */
static int read_segments(struct taking *t, const struct kept_part *kept, const struct version *of,
			 struct replica *part, struct error *error)
{
	struct taken_name like = {.device = part->lies_on, .by_operator = of->by_operator};
	const bool on_host = part->lies_on != part->device;

	for (uint32_t i = 0; i < kept->segments.count; i++) {
		const struct kept_fd *fd = &kept->segments.items[i];
		struct segment *segment;
		int r;

		if (__builtin_add_overflow(part->bytes, fd->bytes, &part->bytes))
			return error_set(error, -EOVERFLOW, NULL, "its segments have more than 2^64 bytes");
		if (!part->lies_on) {
			part->sizes[part->size_count++] = fd->bytes;
			continue;
		}
		like.name = on_host ? kept->memfds.items[i] : fd->name;
		r = taking_segment(t, &like, fd->bytes, &segment, error);
		if (r < 0)
			return r;
		part->segments[part->segment_count++].segment = segment;
	}
	return 0;
}

/* Of a part on its device. */
static int read_spares(struct taking *t, const struct kept_part *kept, const struct version *of,
		       struct replica *part, struct error *error)
{
	struct taken_name like = {.by_operator = of->by_operator};

	if (part->lies_on != part->device || kept->memfds.count == 0)
		return 0;
	if (kept->memfds.count != kept->segments.count)
		return error_set(error, -EINVAL, NULL, "%u memfds for %u segments", kept->memfds.count,
				 kept->segments.count);
	like.device = part->spares_on = device_find(t->into->devices, DEVICE_HOST);
	if (!like.device)
		return error_set(error, -ENODEV, NULL, "no device " DEVICE_HOST);
	part->spares = calloc(kept->memfds.count, sizeof(*part->spares));
	if (!part->spares)
		return taking_no_memory(error);
	for (uint32_t i = 0; i < kept->memfds.count; i++) {
		int r;

		like.name = kept->memfds.items[i];
		r = taking_segment(t, &like, kept->segments.items[i].bytes, &part->spares[i].segment, error);
		if (r < 0)
			return r;
		part->spare_count++;
	}
	return 0;
}

/* Sets where the part lies. */
static int place_part(const struct taking *t, const struct kept_part *kept, const struct version *of,
		      struct replica *part, struct error *error)
{
	if (!part->device)
		return error_set(error, -ENODEV, NULL, "no device %s", kept->device);
	part->lies_on = replica_place(part, of->tier, t->into->devices);
	if (!tier_has_memory(of->tier)) {
		part->sizes = calloc(kept->segments.count + 1, sizeof(*part->sizes));
		return part->sizes ? 0 : taking_no_memory(error);
	}
	if (!part->lies_on)
		return error_set(error, -ENODEV, NULL, "no device " DEVICE_HOST);
	if (part->lies_on != part->device && kept->memfds.count != kept->segments.count)
		return error_set(error, -EINVAL, NULL, "%u memfds for %u segments", kept->memfds.count,
				 kept->segments.count);
	return 0;
}

int kept_origins_take(const struct kept_origins *kept, const struct version_id *version, uint32_t count,
		      struct replica *part, struct error *error)
{
	bool seen[PART_SEGMENTS_MAX] = {false};

	if (kept->count == 0)
		return 0;
	part->origins = calloc((size_t)count + 1, sizeof(*part->origins));
	if (!part->origins)
		return taking_no_memory(error);
	for (uint32_t i = 0; i < count; i++)
		part->origins[i] = (struct origin){*version, i};
	for (uint32_t i = 0; i < kept->count; i++) {
		const struct kept_origin *origin = &kept->items[i];

		if (origin->is >= count || seen[origin->is])
			return error_set(error, -EINVAL, NULL, "origins[%u] is of segment %llu of %u, or again",
					 i, (unsigned long long)origin->is, count);
		seen[origin->is] = true;
		part->origins[origin->is] = (struct origin){*origin->version, origin->segment};
	}
	return 0;
}

/* part->segments, part->spares, part->sizes and part->origins are malloced, after errors too. */
static int read_part(struct taking *t, const msgpack_object *o, const struct version *of, struct replica *part,
		     struct error *error)
{
	struct kept_part kept;
	int r = record_read_map(&kept_part_record, o, t->zone, &kept, error);

	if (r < 0)
		return r;
	*part = (struct replica){
		.rank = (uint32_t)kept.rank,
		.device = device_find(t->into->devices, kept.device),
		.tensors = kept.tensors,
		.layout = *kept.layout,
		.content = *kept.content,
		.index = {.fd = -1, .name = kept.index->name, .bytes = kept.index->bytes},
		.segments = calloc(kept.segments.count + 1, sizeof(*part->segments)),
	};
	if (!part->segments)
		return taking_no_memory(error);
	r = place_part(t, &kept, of, part, error);
	if (r == 0)
		r = kept_origins_take(&kept.origins, &of->id, kept.segments.count, part, error);
	if (r == 0)
		r = taking_index(t, part->index.name, error);
	if (r == 0)
		r = read_segments(t, &kept, of, part, error);
	return r < 0 ? r : read_spares(t, &kept, of, part, error);
}

/* What the fd store did not give back of one version. */
struct missing {
	uint32_t count, all;
	char first[160];
	int unknown; /* -errno of a descriptor that could not be looked at: `first` names that one; 0: there is none */
};

/* The i-th descriptor of a part, in words. */
static void name_held(char text[160], const struct replica *part, uint32_t i, const char *before,
		      const char *behind)
{
	char what[32] = "the index";

	if (i > 0)
		snprintf(what, sizeof(what), "segment %u", i - 1);
	snprintf(text, 160, "%s%s of rank %u on %s%s", before, what, part->rank, part->device->id, behind);
}

/* A name alone is no proof: who may store descriptors may store others. The memory of a GPU can't be told. */
static void count_missing(const struct taking *t, struct replica *part, struct missing *missing)
{
	for (uint32_t i = 0; i <= part->segment_count; i++, missing->all++) {
		const struct segment *segment = i == 0 ? NULL : part->segments[i - 1].segment;
		uint64_t name = segment ? segment->name : part->index.name;
		bool sealed = !segment || part->lies_on->kind->can_look;
		int found = t->fds->look(t->fds->data, name, sealed ? SEALS_READ_ONLY : 0,
					 segment ? segment->bytes : part->index.bytes);

		if (found == SNAPSHOT_FD_HERE || missing->unknown)
			continue;
		if (found < 0) {
			missing->unknown = found;
			name_held(missing->first, part, i, "", "");
		} else if (missing->count++ == 0) {
			name_held(missing->first, part, i, found == SNAPSHOT_FD_MISSING ? "missing is " : "",
				  found == SNAPSHOT_FD_MISSING ? "" : " is not what was stored");
		}
	}
}

/* A host copy that is not whole costs nothing but itself: nothing takes its descriptors, and they leave the store. */
static void drop_lost_spares(const struct taking *t, struct replica *part)
{
	uint32_t i = 0;

	while (i < part->spare_count &&
	       t->fds->look(t->fds->data, part->spares[i].segment->name, SEALS_READ_ONLY,
			    part->spares[i].segment->bytes) == SNAPSHOT_FD_HERE)
		i++;
	if (i == part->spare_count)
		return;
	free(part->spares);
	part->spares = NULL;
	part->spare_count = 0;
	part->spares_on = NULL;
}

/* ---- versions ---- */

/* A version of the map. `like` has what registry_adopt takes, and points into the rest. */
struct taken {
	struct kept_version kept;
	struct kept_fixed fixed;
	struct fields fields, fixed_fields;
	struct version like;
	struct joiners joiners;
	struct error tainted;
	bool owner_known; /* `fixed` was read to its end */
	struct replica parts[PARTS_PER_VERSION_MAX];
	uint32_t part_count;
};

void kept_fixed_take(const struct kept_fixed *fixed, struct version *like, struct joiners *joiners)
{
	snprintf(like->tag, sizeof(like->tag), "%s", fixed->tag);
	like->id = *fixed->id;
	like->publish = *fixed->publish;
	like->world = (uint32_t)fixed->world;
	like->owner = (uid_t)fixed->owner;
	like->by_operator = fixed->by_operator;
	like->cache.cached = fixed->cached;
	if (fixed->companion_of)
		like->cache.companion_of = *fixed->companion_of;
	like->gave_name_up = fixed->cached && like->state == VERSION_RETIRING;
	like->created_ms = fixed->created_ms;
	like->ready_ms = fixed->ready_ms;
	like->joiners = NULL;
	if (fixed->join) {
		joiners_set(joiners, fixed->join);
		like->joiners = joiners;
	}
}

static void set_like(struct taken *v)
{
	struct version *like = &v->like;

	kept_fixed_take(&v->fixed, like, &v->joiners);
	like->force_at_ms = v->kept.force_at_ms;
	like->expire_at_ms = v->kept.expire_at_ms;
	like->forced = v->kept.forced;
	like->restores = v->kept.restores;
	like->last_used_ms = v->kept.last_used_ms;
	like->stale_leases = v->kept.stale_leases;
	if (v->kept.error)
		like->error = *v->kept.error;
	if (v->kept.tainted) {
		v->tainted = *v->kept.tainted;
		like->tainted = &v->tainted;
	}
}

/* What can't be read has a name nevertheless, as far as it goes. */
static void place_name_unread(struct place *place, struct fields *fixed)
{
	char model[NAME_BYTES_MAX + 1] = "", tag[NAME_BYTES_MAX + 1] = "";

	fields_text_or(fixed, "model", model, sizeof(model), "");
	fields_text_or(fixed, "tag", tag, sizeof(tag), "");
	place_name(place, model, tag);
}

static int set_state(const struct kept_version *kept, struct version *like, struct error *error)
{
	like->state =
		strcmp(kept->state, version_state_name(VERSION_READY)) == 0 ? VERSION_READY : VERSION_RETIRING;
	if (strcmp(kept->state, version_state_name(like->state)) != 0)
		return error_set(error, -EINVAL, NULL, "the state \"%s\"", kept->state);
	like->tier = ON_DEVICE; /* An older gpuwmd wrote no tier. */
	if (kept->tier && tier_find(kept->tier, &like->tier) < 0)
		return error_set(error, -EINVAL, NULL, "the tier \"%s\"", kept->tier);
	return 0;
}

static int read_version(struct taking *t, const msgpack_object *o, struct taken *v, struct place *place,
			struct error *error)
{
	const msgpack_object *fixed;
	int r;

	place_name(place, NULL, NULL);
	fields_of(&v->fields, o);
	fixed = fields_map(&v->fields, "fixed");
	if (v->fields.error.code) {
		*error = v->fields.error;
		return error->code;
	}
	r = record_read_map(&kept_fixed_record, fixed, t->zone, &v->fixed, error);
	fields_of(&v->fixed_fields, fixed);
	if (r < 0) {
		place_name_unread(place, &v->fixed_fields);
		return r;
	}
	v->owner_known = true;
	place_name(place, v->fixed.model, v->fixed.tag);
	r = record_read_map(&kept_version_record, o, t->zone, &v->kept, error);
	if (r == 0)
		r = set_state(&v->kept, &v->like, error);
	if (r < 0)
		return r;
	set_like(v);
	return 0;
}

static int take_description(struct version *version, const struct description *kept, struct error *error)
{
	struct description *description;

	if (!kept)
		return tier_has_memory(version->tier)
			       ? 0
			       : error_set(error, -EINVAL, NULL, "it lies on %s, but has no source",
					   tier_name(version->tier));
	description = description_new(kept);
	if (!description)
		return taking_no_memory(error);
	version_describe(version, description);
	return 0;
}

/* What the fd store did not give back makes the version a failed one. */
static int judge_missing(const struct missing *missing, const char *model, struct version *like,
			 struct error *error)
{
	if (missing->unknown)
		return error_set(
			error, -EAGAIN,
			"gpuwmd ends and lets nothing go, so that its next start finds all of it again",
			"%s of %s@%s could not be looked at: %s", missing->first, model, like->tag,
			strerror(-missing->unknown));
	if (missing->count == 0)
		return 0;
	like->state = VERSION_FAILED;
	error_set(&like->error, name_is_nameless(model) ? -ENOENT : -ESTALE, "load or publish it again",
		  "%s@%s was lost: the fd store gave back %u of its %u descriptors; %s%s", model, like->tag,
		  missing->all - missing->count, missing->all, missing->first,
		  missing->count > 1 ? ", and there is more" : "");
	return 0;
}

static int read_parts(struct taking *t, struct taken *v, struct error *error)
{
	struct missing missing = {0};
	uint32_t count;
	const msgpack_object *array = fields_array(&v->fixed_fields, "parts", &count);

	if (v->fixed_fields.error.code) {
		*error = v->fixed_fields.error;
		return error->code;
	}
	if (count > PARTS_PER_VERSION_MAX)
		return error_set(error, -EDQUOT, NULL, "%u parts, the most is %u", count,
				 PARTS_PER_VERSION_MAX);
	for (uint32_t i = 0; i < count; i++) {
		struct error why;
		int r = read_part(t, &array[i], &v->like, &v->parts[v->part_count++], &why);

		if (r < 0)
			return error_set(error, r, why.detail, "parts[%u]: %s", i, why.message);
		count_missing(t, &v->parts[i], &missing);
		drop_lost_spares(t, &v->parts[i]);
	}
	return judge_missing(&missing, v->fixed.model, &v->like, error);
}

/* A version that is lost leaves its model to the user who made it: another publisher's version would else get its aliases. */
static int keep_model(struct taking *t, const struct taken *v, const struct version *version,
		      struct error *error)
{
	const bool was_ready = strcmp(v->kept.state, version_state_name(VERSION_READY)) == 0;

	if (!was_ready || version_is_nameless(version) || model_owner(version->model).known)
		return 0;
	return registry_adopt_owner(t->into->registry, v->fixed.model,
				    &(struct model_owner){true, version->by_operator, version->owner}, error);
}

/* Nobody has seen the version. Its descriptors were not taken. */
static void forget_version(struct registry *registry, struct version *version)
{
	while (version->pin_count > 0)
		version_unpin(version, version->pins[0], NULL);
	if (version->state == VERSION_READY)
		version_move(version, VERSION_RETIRING);
	version_let_go(version);
	/* The table of names still has its segments, for other versions that hold them. */
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		for (uint32_t k = 0; k < part->segment_count; k++) {
			if (!part->segments[k].segment->holds)
				budget_release(&part->segments[k].segment->charge);
		}
		for (uint32_t k = 0; k < part->spare_count; k++) {
			if (!part->spares[k].segment->holds)
				budget_release(&part->spares[k].segment->charge);
		}
	}
	registry_remove(registry, version);
}

static int adopt_version(struct taking *t, struct taken *v, struct error *error)
{
	const struct version *like = &v->like;
	struct version *version;
	int r;

	if (taking_is_lost(t, &like->id))
		return error_set(error, -EEXIST, NULL, "another version has its id");
	r = registry_adopt(t->into->registry, v->fixed.model, like, &version, error);
	if (r < 0)
		return r;
	if (like->state == VERSION_FAILED) {
		r = keep_model(t, v, version, error);
		return r < 0 ? r : taking_keep_lost(t, &like->id, error);
	}
	if (like->tainted)
		version_taint(version, like->tainted);
	for (uint32_t i = 0; r == 0 && i < v->part_count; i++)
		r = version_adopt_replica(version, &v->parts[i], error);
	if (r == 0 && !version_complete(version))
		r = error_set(error, -EINVAL, NULL, "it has no part of one of its %u ranks", version->world);
	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++)
		version->replicas[i].lost = v->kept.lost_parts >> i & 1;
	if (r == 0)
		r = take_description(version, v->fixed.description, error);
	if (r == 0)
		r = version_take_revoked(version, &v->fields, "revoked", error);
	if (r == 0)
		r = version_adopt_charges(version, t->into->quota, error);
	for (uint32_t i = 0; r == 0 && i < v->kept.pins.count; i++)
		r = version_adopt_pin(version, v->kept.pins.items[i], error);
	if (r < 0 && r != -ENOMEM)
		forget_version(t->into->registry, version);
	return r;
}

/* An older version has said whose the model is. */
static int leave_version(struct taking *t, const struct taken *v, const struct place *place,
			 const struct error *why)
{
	const struct kept_fixed *fixed = &v->fixed;
	const struct model_owner owner = {true, fixed->by_operator, (uid_t)fixed->owner};
	const struct model *model = fixed->model ? registry_model(t->into->registry, fixed->model) : NULL;

	if ((model && model_owner(model).known) || (fixed->model && name_is_nameless(fixed->model)))
		return taking_wrong(t, place, why);
	return taking_close_model(t, fixed->model, v->owner_known ? &owner : NULL, place, why);
}

int take_version(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct taken v = {0};
	struct error why;
	int r;

	t->version++;
	r = read_version(t, o, &v, place, &why);
	if (r == 0)
		r = read_parts(t, &v, &why);
	if (r == 0)
		r = adopt_version(t, &v, &why);
	for (uint32_t i = 0; i < v.part_count; i++) {
		free(v.parts[i].segments);
		free(v.parts[i].spares);
		free(v.parts[i].sizes);
		free(v.parts[i].origins);
	}
	return r < 0 ? leave_version(t, &v, place, &why) : 0;
}

static void take_holds(const struct taking *t, const struct segment_hold *holds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct segment *segment = holds[i].segment;

		if (segment->fd < 0)
			segment->fd = t->fds->take(t->fds->data, segment->name);
	}
}

void take_fds(const struct taking *t)
{
	struct version *version = NULL;

	while ((version = registry_next_version(t->into->registry, NULL, version))) {
		for (uint32_t i = 0; i < version->replica_count; i++) {
			struct replica *part = &version->replicas[i];

			part->index.fd = t->fds->take(t->fds->data, part->index.name);
			take_holds(t, part->segments, part->segment_count);
			take_holds(t, part->spares, part->spare_count);
		}
	}
}
