#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- devices ---- */

int kept_device_add(struct device_table *table, const struct kept_device *kept, struct error *error)
{
	struct device device = {
		.kind = memory_kind_find(kept->kind),
		.total = kept->total,
		.granularity = kept->granularity,
		.context = kept->context,
	};
	int r;

	if (device_wrong(kept->id))
		return error_set(error, -EINVAL, NULL, "\"%s\" %s", kept->id, device_wrong(kept->id));
	if (!device.kind)
		return error_set(error, -EINVAL, NULL, "%s is of the unknown kind \"%s\"", kept->id,
				 kept->kind);
	snprintf(device.id, sizeof(device.id), "%s", kept->id);
	snprintf(device.name, sizeof(device.name), "%s", kept->name);
	r = device_table_report(table, &device, 0);
	if (r == -ENOMEM)
		return taking_no_memory(error);
	if (r < 0)
		return error_set(error, r, NULL, "more than %d devices", DEVICES_MAX);
	if (kept->lost)
		device_find(table, kept->id)->lost = *kept->lost;
	return 0;
}

static int take_device(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct kept_device kept;
	struct error why;
	int r = record_read_map(&kept_device_record, o, t->zone, &kept, &why);

	if (r == 0 && device_find(t->into->devices, kept.id))
		r = error_set(&why, -EEXIST, NULL, "%s is there twice", kept.id);
	if (r == 0)
		r = kept_device_add(t->into->devices, &kept, &why);
	return r < 0 ? taking_wrong(t, place, &why) : 0;
}

/* ---- aliases ---- */

/* The version with this id, of the alias's model. */
static int alias_version(struct taking *t, const struct kept_alias *kept, const struct version_id *id,
			 struct version **ret, struct error *error)
{
	const struct ref ref = {.has_id = true, .id = *id};
	uint64_t none;
	int r = registry_find(t->into->registry, &ref, ret, &none, error);

	if (r == 0 && strcmp(kept->model, model_name((*ret)->model)) != 0)
		return error_set(error, -EINVAL, NULL, "it names a version of model \"%s\"",
				 model_name((*ret)->model));
	return r;
}

static int take_alias(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct version *version;
	struct kept_alias kept;
	struct error why;
	int r = record_read_map(&kept_alias_record, o, t->zone, &kept, &why);

	place_name(place, kept.model, kept.name);
	if (r < 0)
		return taking_wrong(t, place, &why);
	if (taking_is_lost(t, kept.version))
		return 0;
	r = alias_version(t, &kept, kept.version, &version, &why);
	if (r == 0)
		r = registry_adopt_alias(t->into->registry, version, kept.name, kept.generation, &why);
	if (r == 0 && kept.before && !taking_is_lost(t, kept.before)) {
		r = alias_version(t, &kept, kept.before, &version, &why);
		if (r == -ENOENT && t->into->unread->count > 0) /* it may be among these */
			return 0;
		if (r == 0)
			r = registry_adopt_before(t->into->registry, version, kept.name, &why);
	}
	return r < 0 ? taking_wrong(t, place, &why) : 0;
}

/* ---- owners ---- */

static int take_owner(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct kept_owner kept;
	struct error why;

	if (record_read_map(&kept_owner_record, o, t->zone, &kept, &why) < 0) {
		snprintf(place->what, sizeof(place->what), " (%s)", kept.model ? kept.model : "");
		return taking_close_model(t, kept.model, NULL, place, &why);
	}
	return registry_adopt_owner(t->into->registry, kept.model,
				    &(struct model_owner){true, kept.by_operator, (uid_t)kept.uid}, t->error);
}

/* ---- claims ---- */

static int take_claim(struct taking *t, const msgpack_object *o, struct place *place)
{
	struct kept_claim kept;
	struct ref name = {0};
	struct error why;
	int r = record_read_map(&kept_claim_record, o, t->zone, &kept, &why);

	place_name(place, kept.model, kept.tag);
	if (r == 0 && (name_wrong(kept.model) || name_wrong(kept.tag)))
		r = error_set(&why, -EINVAL, NULL, "it claims what is no name of a version");
	if (r == 0) {
		snprintf(name.model, sizeof(name.model), "%s", kept.model);
		snprintf(name.name, sizeof(name.name), "%s", kept.tag);
		r = claim_reserve(t->into->claims, &name, t->into->quota, (uid_t)kept.uid, &why);
	}
	if (r < 0)
		registry_note_unnamed(t->into->registry); /* whose name it is nobody knows */
	return r < 0 ? taking_wrong(t, place, &why) : 0;
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

		if (r == -EUCLEAN)
			r = taking_leave(t, key, &array[i]);
		if (r < 0)
			return r;
	}
	return 0;
}

static int take_arrays(struct taking *t, struct fields *f)
{
	int r = take_each(t, f, "devices", take_device);

	if (r == 0)
		r = take_each(t, f, "versions", take_version);
	if (r == 0)
		r = take_each(t, f, "aliases", take_alias);
	if (r == 0 && fields_have(f, "owners")) /* older ones have none */
		r = take_each(t, f, "owners", take_owner);
	if (r == 0 && fields_have(f, "claims")) /* older ones have none */
		r = take_each(t, f, "claims", take_claim);
	if (r == 0 && t->into->regions && fields_have(f, "regions")) /* older ones have none */
		r = take_each(t, f, "regions", take_region);
	if (r == 0 && f->error.code)
		r = taking_refused(t, &f->error);
	return r;
}

static int take_all(struct taking *t, const msgpack_object *body)
{
	struct kept_state kept;
	struct fields f;
	struct error why;
	int r = record_read_map(&kept_state_record, body, t->zone, &kept, &why);

	if (r == 0 && kept.next_name > STORE_NAME_MAX)
		r = error_set(&why, -EINVAL, NULL, "no descriptor has the name %llu",
			      (unsigned long long)kept.next_name);
	if (r < 0)
		return taking_refused(t, &why);
	t->into->ledger = *kept.ledger;
	t->into->epoch = kept.epoch;
	t->into->next_name = kept.next_name;
	t->into->scrub_from_ms = kept.scrub_from_ms;
	t->into->described = kept.described;
	fields_of(&f, body);
	r = take_arrays(t, &f);
	if (r < 0)
		return r;
	if (t->into->next_name <= t->greatest_name)
		t->into->next_name = t->greatest_name + 1;
	take_fds(t);
	take_region_fds(t);
	return 0;
}

int snapshot_take(const struct snapshot_stored *stored, const struct snapshot_fds *fds, struct snapshot *into,
		  uint64_t *ret_lost, struct error *error)
{
	struct taking t = {.fds = fds, .into = into, .error = error};
	struct message message;
	const char *why;
	int r = message_read_body(stored->data, stored->bytes, &message, &why); /* there is one format so far */

	if (r == -ENOMEM)
		return taking_no_memory(error);
	if (r < 0)
		return error_set(error, -EUCLEAN, NULL, "the state is no map of MessagePack: %s", why);
	t.zone = message.zone;
	r = take_all(&t, message.body);
	message_clear(&message);
	taking_clear_names(&t);
	free(t.lost);
	if (r == 0)
		*ret_lost = t.lost_count;
	return r;
}
