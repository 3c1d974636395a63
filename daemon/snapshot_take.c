#include "snapshot.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Twice the descriptors, so that chains stay short. */
#define NAME_SLOTS (2 * STORE_FDS_MAX)

struct taking {
	const struct snapshot_fds *fds;
	struct snapshot *into;
	struct error *error;
	struct version_id *lost; /* their entries may be forgotten already */
	uint64_t lost_count, lost_room;
	uint64_t greatest_name;
	uint32_t name_count;
	uint64_t names[NAME_SLOTS]; /* a hash table; 0: empty */
};

/* One entry of one of the map's arrays, for errors: versions[3] (m@v1). */
struct place {
	const char *array;
	uint32_t position;
	char what[2 * NAME_BYTES_MAX + 8];
};

static int wrong(struct taking *t, const struct place *place, const struct error *why)
{
	if (why->code == -ENOMEM)
		return error_set(t->error, -ENOMEM, why->detail, "%s", why->message);
	return error_set(t->error, -EUCLEAN, NULL, "the state's %s[%u]%s: %s", place->array, place->position,
			 place->what, why->message);
}

static int no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

static uint32_t fields_u32(struct fields *f, const char *key)
{
	uint64_t value = fields_u64(f, key);

	if (!f->error.code && value > UINT32_MAX)
		error_set(&f->error, -EINVAL, NULL, "\"%s\" is above 32 bits", key);
	return (uint32_t)value;
}

/* ---- devices ---- */

static int take_device(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct device device = {0};
	struct fields f;
	char kind[8];
	int r = 0;

	fields_of(&f, o);
	fields_text(&f, "id", device.id, sizeof(device.id));
	fields_text(&f, "kind", kind, sizeof(kind));
	fields_text(&f, "name", device.name, sizeof(device.name));
	device.total = fields_u64(&f, "total");
	device.granularity = fields_u64(&f, "granularity");
	device.context = fields_u64_or(&f, "context", 0); /* older ones have none */
	device.is_cuda = strcmp(kind, "cuda") == 0;
	if (!f.error.code && device_wrong(device.id))
		error_set(&f.error, -EINVAL, NULL, "\"%s\" %s", device.id, device_wrong(device.id));
	if (!f.error.code && !device.is_cuda && strcmp(kind, "host") != 0)
		error_set(&f.error, -EINVAL, NULL, "%s is of the unknown kind \"%s\"", device.id, kind);
	if (!f.error.code && device_find(t->into->devices, device.id))
		error_set(&f.error, -EEXIST, NULL, "%s is there twice", device.id);
	if (!f.error.code)
		r = device_table_report(t->into->devices, &device, 0);
	if (r == -ENOMEM)
		no_memory(&f.error);
	else if (r < 0)
		error_set(&f.error, r, NULL, "more than %d devices", DEVICES_MAX);
	return f.error.code ? wrong(t, place, &f.error) : 0;
}

/* ---- descriptors ---- */

/* False: it is there already. */
static bool name_add(struct taking *t, uint64_t name)
{
	uint64_t i = name % NAME_SLOTS;

	while (t->names[i] && t->names[i] != name)
		i = (i + 1) % NAME_SLOTS;
	if (t->names[i] == name)
		return false;
	t->names[i] = name;
	t->name_count++;
	if (name > t->greatest_name)
		t->greatest_name = name;
	return true;
}

static void read_held(struct taking *t, struct fields *part, const msgpack_object *o, struct held_fd *ret)
{
	struct fields f;

	fields_of(&f, o);
	*ret = (struct held_fd){.fd = -1, .bytes = fields_u64(&f, "bytes"), .name = fields_u64(&f, "name")};
	if (!f.error.code && (ret->name == 0 || ret->name > STORE_NAME_MAX))
		error_set(&f.error, -EINVAL, NULL, "no descriptor has the name %llu",
			  (unsigned long long)ret->name);
	if (!f.error.code && t->name_count == STORE_FDS_MAX)
		error_set(&f.error, -EDQUOT, NULL, "more than %u descriptors", STORE_FDS_MAX);
	if (!f.error.code && !name_add(t, ret->name))
		error_set(&f.error, -EEXIST, NULL, "two descriptors are named %llu",
			  (unsigned long long)ret->name);
	if (f.error.code && !part->error.code)
		part->error = f.error;
}

/* ---- parts ---- */

static void read_segments(struct taking *t, struct fields *f, struct replica *part)
{
	uint32_t count;
	const msgpack_object *array = fields_array(f, "segments", &count);

	if (f->error.code)
		return;
	part->segments = calloc(count + 1, sizeof(*part->segments));
	if (!part->segments) {
		no_memory(&f->error);
		return;
	}
	part->segment_count = count;
	for (uint32_t i = 0; i < count && !f->error.code; i++) {
		read_held(t, f, &array[i], &part->segments[i]);
		if (__builtin_add_overflow(part->bytes, part->segments[i].bytes, &part->bytes))
			error_set(&f->error, -EOVERFLOW, NULL, "its segments have more than 2^64 bytes");
	}
}

/* part->segments is malloced, after errors too. */
static void read_part(struct taking *t, const msgpack_object *o, struct replica *part, struct error *error)
{
	char device[DEVICE_BYTES_MAX + 1];
	struct fields f;

	fields_of(&f, o);
	part->rank = fields_u32(&f, "rank");
	fields_text(&f, "device", device, sizeof(device));
	part->tensors = fields_u64(&f, "tensors");
	fields_hex128(&f, "layout", part->layout.bytes);
	fields_hex128(&f, "content", part->content.bytes);
	read_held(t, &f, fields_map(&f, "index"), &part->index);
	read_segments(t, &f, part);
	part->device = device_find(t->into->devices, device);
	if (!f.error.code && !part->device)
		error_set(&f.error, -ENODEV, NULL, "no device %s", device);
	*error = f.error;
}

/* The i-th descriptor of a part: its index, then its segments. */
static struct held_fd *held_at(struct replica *part, uint32_t i)
{
	return i == 0 ? &part->index : &part->segments[i - 1];
}

/* What the fd store did not give back of one version. */
struct missing {
	uint32_t count, all;
	char first[160];
};

/* A name alone is no proof: who may store descriptors may store others. The memory of a GPU can't be told. */
static void count_missing(const struct taking *t, struct replica *part, struct missing *missing)
{
	for (uint32_t i = 0; i <= part->segment_count; i++, missing->all++) {
		const struct held_fd *held = held_at(part, i);
		enum snapshot_fd found =
			t->fds->look(t->fds->data, held->name, i == 0 || !part->device->is_cuda, held->bytes);
		char what[32] = "the index";

		if (found == SNAPSHOT_FD_HERE || missing->count++ > 0)
			continue;
		if (i > 0)
			snprintf(what, sizeof(what), "segment %u", i - 1);
		snprintf(missing->first, sizeof(missing->first), "%s%s of rank %u on %s%s",
			 found == SNAPSHOT_FD_MISSING ? "missing is " : "", what, part->rank, part->device->id,
			 found == SNAPSHOT_FD_MISSING ? "" : " is not what was stored");
	}
}

/* ---- versions ---- */

static int keep_lost(struct taking *t, const struct version_id *id, struct error *error)
{
	if (t->lost_count == t->lost_room) {
		uint64_t room = t->lost_room ? 2 * t->lost_room : 16;
		struct version_id *lost = reallocarray(t->lost, room, sizeof(*lost));

		if (!lost)
			return no_memory(error);
		t->lost = lost;
		t->lost_room = room;
	}
	t->lost[t->lost_count++] = *id;
	return 0;
}

static bool is_lost(const struct taking *t, const struct version_id *id)
{
	for (uint64_t i = 0; i < t->lost_count; i++) {
		if (version_id_equal(&t->lost[i], id))
			return true;
	}
	return false;
}

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
	like->world = fields_u32(fixed, "world");
	like->owner = fields_u32(fixed, "owner");
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

		read_part(t, &array[i], &parts[i], &why);
		if (why.code)
			return error_set(error, why.code, why.detail, "parts[%u]: %s", i, why.message);
		count_missing(t, &parts[i], &missing);
	}
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

	if (is_lost(t, &like->id))
		return error_set(error, -EEXIST, NULL, "another version has its id");
	r = registry_adopt(t->into->registry, model, like, &version, error);
	if (r < 0)
		return r;
	if (like->state == VERSION_FAILED)
		return keep_lost(t, &like->id, error);
	if (like->tainted)
		version_taint(version, like->tainted);
	r = adopt_parts(version, parts, count, error);
	if (r == 0)
		r = version_take_revoked(version, f, "revoked", error);
	if (r == 0)
		r = version_adopt_charges(version, t->into->quota, error);
	return r < 0 ? r : take_pins(version, f, error);
}

static int take_version(struct taking *t, const msgpack_object *o, struct place *place)
{
	char model[NAME_BYTES_MAX + 1];
	struct replica parts[PARTS_PER_VERSION_MAX] = {0};
	struct version like = {0};
	struct fields f, fixed;
	struct pointed pointed = {0};
	struct error why;
	uint32_t count = 0;
	int r;

	read_version(o, model, &like, &pointed, &f, &fixed);
	snprintf(place->what, sizeof(place->what), " (%s@%s)", model, like.tag);
	if (f.error.code)
		return wrong(t, place, &f.error);
	r = read_parts(t, model, &fixed, &like, parts, &count, &why);
	if (r == 0)
		r = adopt_version(t, model, &like, &f, parts, count, &why);
	for (uint32_t i = 0; i < count; i++)
		free(parts[i].segments);
	return r < 0 ? wrong(t, place, &why) : 0;
}

/* ---- aliases ---- */

static int take_alias(struct taking *t, const msgpack_object *o, struct place *place)
{
	char model[NAME_BYTES_MAX + 1], name[NAME_BYTES_MAX + 1];
	struct ref ref = {.has_id = true};
	struct version *version;
	uint64_t generation, none;
	struct fields f;
	int r = 0;

	fields_of(&f, o);
	fields_text(&f, "model", model, sizeof(model));
	fields_text(&f, "name", name, sizeof(name));
	fields_hex128(&f, "version", ref.id.bytes);
	generation = fields_u64(&f, "generation");
	snprintf(place->what, sizeof(place->what), " (%s@%s)", model, name);
	if (f.error.code)
		return wrong(t, place, &f.error);
	if (is_lost(t, &ref.id))
		return 0;
	r = registry_find(t->into->registry, &ref, &version, &none, &f.error);
	if (r == 0 && strcmp(model, model_name(version->model)) != 0)
		r = error_set(&f.error, -EINVAL, NULL, "it names a version of model \"%s\"",
			      model_name(version->model));
	if (r == 0)
		r = registry_adopt_alias(t->into->registry, version, name, generation, &f.error);
	return r < 0 ? wrong(t, place, &f.error) : 0;
}

/* ---- owners ---- */

/* Of a model whose versions are all lost there is nothing to own; failed versions may be forgotten, and the model with
 * them. */
static int take_owner(struct taking *t, const msgpack_object *o, struct place *place)
{
	char name[NAME_BYTES_MAX + 1];
	struct model_owner owner = {.known = true};
	struct model *model;
	struct fields f;

	fields_of(&f, o);
	fields_text(&f, "model", name, sizeof(name));
	owner.uid = fields_u32(&f, "uid");
	owner.by_operator = fields_bool_or(&f, "by_operator", false);
	snprintf(place->what, sizeof(place->what), " (%s)", name);
	model = registry_model(t->into->registry, name);
	if (f.error.code)
		return wrong(t, place, &f.error);
	if (model)
		model_adopt_owner(model, &owner);
	return 0;
}

/* ---- all ---- */

/* Last, so that nothing was taken where something is wrong. */
static void take_fds(const struct taking *t)
{
	struct version *version = NULL;

	while ((version = registry_next_version(t->into->registry, NULL, version))) {
		for (uint32_t i = 0; i < version->replica_count; i++) {
			struct replica *part = &version->replicas[i];

			for (uint32_t k = 0; k <= part->segment_count; k++)
				held_at(part, k)->fd = t->fds->take(t->fds->data, held_at(part, k)->name);
		}
	}
}

/* ---- claims ---- */

static int take_claim(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct ref name = {0};
	struct fields f;
	uid_t uid;

	fields_of(&f, o);
	fields_text(&f, "model", name.model, sizeof(name.model));
	fields_text(&f, "tag", name.name, sizeof(name.name));
	uid = fields_u32(&f, "uid");
	snprintf(place->what, sizeof(place->what), " (%s@%s)", name.model, name.name);
	if (!f.error.code && (name_wrong(name.model) || name_wrong(name.name)))
		error_set(&f.error, -EINVAL, NULL, "it claims what is no name of a version");
	if (!f.error.code)
		claim_reserve(t->into->claims, &name, t->into->quota, uid, &f.error);
	return f.error.code ? wrong(t, place, &f.error) : 0;
}

/* Nothing after an error in the map itself, which is told at the end. */
static int take_each(struct taking *t, struct fields *f, const char *key,
		     int (*take)(struct taking *, const msgpack_object *, struct place *))
{
	uint32_t count;
	const msgpack_object *array = fields_array(f, key, &count);

	for (uint32_t i = 0; i < count && !f->error.code; i++) {
		struct place place = {.array = key, .position = i};
		int r = take(t, &array[i], &place);

		if (r < 0)
			return r;
	}
	return 0;
}

static int take_all(struct taking *t, const msgpack_object *body)
{
	struct fields f;
	int r;

	fields_of(&f, body);
	fields_hex128(&f, "ledger", t->into->ledger.bytes);
	t->into->epoch = fields_u64(&f, "epoch");
	t->into->next_name = fields_u64(&f, "next_name");
	t->into->scrub_from_ms = fields_u64_or(&f, "scrub_from_ms", 0);
	r = take_each(t, &f, "devices", take_device);
	if (r == 0)
		r = take_each(t, &f, "versions", take_version);
	if (r == 0)
		r = take_each(t, &f, "aliases", take_alias);
	if (r == 0 && fields_have(&f, "owners")) /* older ones have none */
		r = take_each(t, &f, "owners", take_owner);
	if (r == 0 && fields_have(&f, "claims")) /* older ones have none */
		r = take_each(t, &f, "claims", take_claim);
	if (!f.error.code && t->into->next_name > STORE_NAME_MAX)
		error_set(&f.error, -EINVAL, NULL, "no descriptor has the name %llu",
			  (unsigned long long)t->into->next_name);
	if (r == 0 && f.error.code)
		r = error_set(t->error, -EUCLEAN, NULL, "the state: %s", f.error.message);
	if (r < 0)
		return r;
	if (t->into->next_name <= t->greatest_name)
		t->into->next_name = t->greatest_name + 1;
	registry_find_owners(t->into->registry);
	take_fds(t);
	return 0;
}

int snapshot_take(const void *data, size_t bytes, uint32_t format, const struct snapshot_fds *fds,
		  struct snapshot *into, uint64_t *ret_lost, struct error *error)
{
	struct taking t = {.fds = fds, .into = into, .error = error};
	struct message message;
	const char *why;
	int r = message_read_body(data, bytes, &message, &why);

	(void)format; /* there is one so far */
	if (r == -ENOMEM)
		return no_memory(error);
	if (r < 0)
		return error_set(error, -EUCLEAN, NULL, "the state is no map of MessagePack: %s", why);
	r = take_all(&t, message.body);
	message_clear(&message);
	free(t.lost);
	if (r == 0)
		*ret_lost = t.lost_count;
	return r;
}
