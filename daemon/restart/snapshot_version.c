/* The versions of a state, with their parts and descriptors. */
#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- descriptors ---- */

/* {name, bytes}. Errors stick to the part's fields. */
static void read_fd(struct fields *part, const msgpack_object *o, uint64_t *ret_name, uint64_t *ret_bytes)
{
	struct fields f;

	fields_of(&f, o);
	*ret_bytes = fields_u64(&f, "bytes");
	*ret_name = fields_u64(&f, "name");
	if (f.error.code && !part->error.code)
		part->error = f.error;
}

/* ---- parts ---- */

static void read_index(struct taking *t, struct fields *f, struct replica *part)
{
	part->index.fd = -1;
	read_fd(f, fields_map(f, "index"), &part->index.name, &part->index.bytes);
	if (!f->error.code)
		taking_index(t, part->index.name, &f->error);
}

static void read_segment(struct taking *t, struct fields *f, const msgpack_object *o, struct replica *part,
			 struct taken_name *like)
{
	struct segment *segment;
	uint64_t bytes;

	read_fd(f, o, &like->name, &bytes);
	if (f->error.code || taking_segment(t, like, bytes, &segment, &f->error) < 0)
		return;
	part->segments[part->segment_count++].segment = segment;
	if (__builtin_add_overflow(part->bytes, bytes, &part->bytes))
		error_set(&f->error, -EOVERFLOW, NULL, "its segments have more than 2^64 bytes");
}

static void read_segments(struct taking *t, struct fields *f, struct replica *part, bool by_operator)
{
	struct taken_name like = {.device = part->device, .by_operator = by_operator};
	uint32_t count;
	const msgpack_object *array = fields_array(f, "segments", &count);

	if (f->error.code)
		return;
	part->segments = calloc(count + 1, sizeof(*part->segments));
	if (!part->segments) {
		taking_no_memory(&f->error);
		return;
	}
	for (uint32_t i = 0; i < count && !f->error.code; i++)
		read_segment(t, f, &array[i], part, &like);
}

/* part->segments is malloced, after errors too. Its segments are the table's. */
static void read_part(struct taking *t, const msgpack_object *o, const struct version *of, struct replica *part,
		      struct error *error)
{
	char device[DEVICE_BYTES_MAX + 1];
	struct fields f;

	fields_of(&f, o);
	part->rank = taking_u32(&f, "rank");
	fields_text(&f, "device", device, sizeof(device));
	part->tensors = fields_u64(&f, "tensors");
	fields_hex128(&f, "layout", part->layout.bytes);
	fields_hex128(&f, "content", part->content.bytes);
	part->device = device_find(t->into->devices, device);
	read_index(t, &f, part);
	read_segments(t, &f, part, of->by_operator);
	if (!f.error.code && !part->device)
		error_set(&f.error, -ENODEV, NULL, "no device %s", device);
	*error = f.error;
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
		int found = t->fds->look(t->fds->data, name, !segment || part->device->kind->can_look,
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

/* ---- versions ---- */

/* What like->tainted and like->joiners point to. */
struct pointed {
	struct error tainted;
	struct joiners joiners;
};

/* `f` is of what changes, `fixed` of what does not. */
static void read_version(const msgpack_object *o, char *model, struct version *like, struct pointed *pointed,
			 struct fields *f, struct fields *fixed)
{
	char state[16];

	fields_of(f, o);
	fields_of(fixed, fields_map(f, "fixed"));
	fields_text(fixed, "model", model, NAME_BYTES_MAX + 1);
	fields_text(fixed, "tag", like->tag, sizeof(like->tag));
	fields_hex128(fixed, "id", like->id.bytes);
	fields_hex128(fixed, "publish", like->publish.bytes);
	like->world = taking_u32(fixed, "world");
	like->owner = taking_u32(fixed, "owner");
	like->by_operator = fields_bool_or(fixed, "by_operator", false); /* older ones do not tell */
	joiners_read(fixed, "join", &pointed->joiners);
	if (pointed->joiners.uid_count + pointed->joiners.gid_count > 0)
		like->joiners = &pointed->joiners;
	like->created_ms = fields_u64(fixed, "created_ms");
	like->ready_ms = fields_u64(fixed, "ready_ms");
	fields_text(f, "state", state, sizeof(state));
	like->force_at_ms = fields_u64_or(f, "force_at_ms", 0);
	like->forced = fields_bool_or(f, "forced", false);
	fields_error(f, "error", &like->error);
	if (fields_error(f, "tainted", &pointed->tainted))
		like->tainted = &pointed->tainted;
	like->state = strcmp(state, version_state_name(VERSION_READY)) == 0 ? VERSION_READY : VERSION_RETIRING;
	if (!f->error.code && strcmp(state, version_state_name(like->state)) != 0)
		error_set(&f->error, -EINVAL, NULL, "the state \"%s\"", state);
	if (!f->error.code)
		f->error = fixed->error;
}

/* Older ones tell no lost part. */
static void take_lost(struct version *version, struct fields *f)
{
	uint64_t lost = fields_u64_or(f, "lost_parts", 0);

	for (uint32_t i = 0; i < version->replica_count; i++)
		version->replicas[i].lost = lost >> i & 1;
}

static int take_pins(struct version *version, struct fields *f, struct error *error)
{
	uint32_t count;
	const msgpack_object *pins = fields_array(f, "pins", &count);

	for (uint32_t i = 0; i < count; i++) {
		char pin[NAME_BYTES_MAX + 1];
		int r;

		fields_text_at(f, &pins[i], "pins", pin, sizeof(pin));
		r = f->error.code ? 0 : version_adopt_pin(version, pin, error);
		if (r < 0)
			return r;
	}
	if (f->error.code)
		*error = f->error;
	return f->error.code;
}

static int adopt_parts(struct version *version, struct replica *parts, uint32_t count, struct error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		int r = version_adopt_replica(version, &parts[i], error);

		if (r < 0)
			return r;
	}
	if (!version_complete(version))
		return error_set(error, -EINVAL, NULL, "it has no part of one of its %u ranks", version->world);
	return 0;
}

/* Fills the parts, and like->error if some of them is missing. */
static int read_parts(struct taking *t, const char *model, struct fields *f, struct version *like,
		      struct replica *parts, uint32_t *ret_count, struct error *error)
{
	const msgpack_object *array = fields_array(f, "parts", ret_count);
	struct missing missing = {0};
	uint32_t count = *ret_count;

	if (f->error.code) {
		*error = f->error;
		return f->error.code;
	}
	if (count > PARTS_PER_VERSION_MAX) {
		*ret_count = 0;
		return error_set(error, -EDQUOT, NULL, "%u parts, the most is %u", count,
				 PARTS_PER_VERSION_MAX);
	}
	for (uint32_t i = 0; i < count; i++) {
		struct error why;

		read_part(t, &array[i], like, &parts[i], &why);
		if (why.code)
			return error_set(error, why.code, why.detail, "parts[%u]: %s", i, why.message);
		count_missing(t, &parts[i], &missing);
	}
	if (missing.unknown)
		return error_set(
			error, -EAGAIN,
			"gpuwmd ends and lets nothing go, so that its next start finds all of it again",
			"%s of %s@%s could not be looked at: %s", missing.first, model, like->tag,
			strerror(-missing.unknown));
	if (missing.count) {
		like->state = VERSION_FAILED;
		error_set(&like->error, -ESTALE, "load or publish it again",
			  "%s@%s was lost: the fd store gave back %u of its %u descriptors; %s%s", model,
			  like->tag, missing.all - missing.count, missing.all, missing.first,
			  missing.count > 1 ? ", and there is more" : "");
	}
	return 0;
}

static int adopt_version(struct taking *t, const char *model, const struct version *like, struct fields *f,
			 struct replica *parts, uint32_t count, struct error *error)
{
	struct version *version;
	int r;

	if (taking_is_lost(t, &like->id))
		return error_set(error, -EEXIST, NULL, "another version has its id");
	r = registry_adopt(t->into->registry, model, like, &version, error);
	if (r < 0)
		return r;
	if (like->state == VERSION_FAILED)
		return taking_keep_lost(t, &like->id, error);
	if (like->tainted)
		version_taint(version, like->tainted);
	r = adopt_parts(version, parts, count, error);
	if (r == 0)
		take_lost(version, f);
	if (r == 0)
		r = version_take_revoked(version, f, "revoked", error);
	if (r == 0)
		r = version_adopt_charges(version, t->into->quota, error);
	return r < 0 ? r : take_pins(version, f, error);
}

int take_version(struct taking *t, const msgpack_object *o, struct place *place)
{
	char model[NAME_BYTES_MAX + 1];
	struct replica parts[PARTS_PER_VERSION_MAX] = {0};
	struct version like = {0};
	struct fields f, fixed;
	struct pointed pointed = {0};
	struct error why;
	uint32_t count = 0;
	int r;

	t->version++;
	read_version(o, model, &like, &pointed, &f, &fixed);
	snprintf(place->what, sizeof(place->what), " (%s@%s)", model, like.tag);
	if (f.error.code)
		return taking_wrong(t, place, &f.error);
	r = read_parts(t, model, &fixed, &like, parts, &count, &why);
	if (r == 0)
		r = adopt_version(t, model, &like, &f, parts, count, &why);
	for (uint32_t i = 0; i < count; i++)
		free(parts[i].segments);
	return r < 0 ? taking_wrong(t, place, &why) : 0;
}

static void take_part_fds(const struct taking *t, struct replica *part)
{
	part->index.fd = t->fds->take(t->fds->data, part->index.name);
	for (uint32_t i = 0; i < part->segment_count; i++) {
		struct segment *segment = part->segments[i].segment;

		if (segment->fd < 0)
			segment->fd = t->fds->take(t->fds->data, segment->name);
	}
}

void take_fds(const struct taking *t)
{
	struct version *version = NULL;

	while ((version = registry_next_version(t->into->registry, NULL, version))) {
		for (uint32_t i = 0; i < version->replica_count; i++)
			take_part_fds(t, &version->replicas[i]);
	}
}
