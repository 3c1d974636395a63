#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices ---- */

static int take_device(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct device device = {0};
	struct fields f;
	char kind[16];
	int r = 0;

	fields_of(&f, o);
	fields_text(&f, "id", device.id, sizeof(device.id));
	fields_text(&f, "kind", kind, sizeof(kind));
	fields_text(&f, "name", device.name, sizeof(device.name));
	device.total = fields_u64(&f, "total");
	device.granularity = fields_u64(&f, "granularity");
	device.context = fields_u64_or(&f, "context", 0); /* older ones have none */
	device.kind = memory_kind_find(kind);
	if (!f.error.code && device_wrong(device.id))
		error_set(&f.error, -EINVAL, NULL, "\"%s\" %s", device.id, device_wrong(device.id));
	if (!f.error.code && !device.kind)
		error_set(&f.error, -EINVAL, NULL, "%s is of the unknown kind \"%s\"", device.id, kind);
	if (!f.error.code && device_find(t->into->devices, device.id))
		error_set(&f.error, -EEXIST, NULL, "%s is there twice", device.id);
	fields_error(&f, "lost", &device.lost);
	if (!f.error.code)
		r = device_table_report(t->into->devices, &device, 0);
	if (!f.error.code && r == 0)
		device_find(t->into->devices, device.id)->lost = device.lost;
	if (r == -ENOMEM)
		taking_no_memory(&f.error);
	else if (r < 0)
		error_set(&f.error, r, NULL, "more than %d devices", DEVICES_MAX);
	return f.error.code ? taking_wrong(t, place, &f.error) : 0;
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
		return taking_wrong(t, place, &f.error);
	if (taking_is_lost(t, &ref.id))
		return 0;
	r = registry_find(t->into->registry, &ref, &version, &none, &f.error);
	if (r == 0 && strcmp(model, model_name(version->model)) != 0)
		r = error_set(&f.error, -EINVAL, NULL, "it names a version of model \"%s\"",
			      model_name(version->model));
	if (r == 0)
		r = registry_adopt_alias(t->into->registry, version, name, generation, &f.error);
	return r < 0 ? taking_wrong(t, place, &f.error) : 0;
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
	owner.uid = taking_u32(&f, "uid");
	owner.by_operator = fields_bool_or(&f, "by_operator", false);
	snprintf(place->what, sizeof(place->what), " (%s)", name);
	model = registry_model(t->into->registry, name);
	if (f.error.code)
		return taking_wrong(t, place, &f.error);
	if (model)
		model_adopt_owner(model, &owner);
	return 0;
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
	uid = taking_u32(&f, "uid");
	snprintf(place->what, sizeof(place->what), " (%s@%s)", name.model, name.name);
	if (!f.error.code && (name_wrong(name.model) || name_wrong(name.name)))
		error_set(&f.error, -EINVAL, NULL, "it claims what is no name of a version");
	if (!f.error.code)
		claim_reserve(t->into->claims, &name, t->into->quota, uid, &f.error);
	return f.error.code ? taking_wrong(t, place, &f.error) : 0;
}

/* ---- all ---- */

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
		return taking_no_memory(error);
	if (r < 0)
		return error_set(error, -EUCLEAN, NULL, "the state is no map of MessagePack: %s", why);
	r = take_all(&t, message.body);
	message_clear(&message);
	taking_clear_names(&t);
	free(t.lost);
	if (r == 0)
		*ret_lost = t.lost_count;
	return r;
}
