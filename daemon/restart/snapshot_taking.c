/* What the files that read a state share: its errors, the list of versions that are lost, and the names of descriptors. */
#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int taking_wrong(struct taking *t, const struct place *place, const struct error *why)
{
	if (why->code == -ENOMEM || why->code == -EAGAIN)
		return error_set(t->error, why->code, why->detail, "%s", why->message);
	return error_set(t->error, -EUCLEAN, NULL, "the state's %s[%u]%s: %s", place->array, place->position,
			 place->what, why->message);
}

/* ---- what can't be read ---- */

void unread_records_clear(struct unread_records *records)
{
	while (records->first) {
		struct unread_record *next = records->first->next;

		free(records->first->data);
		free(records->first);
		records->first = next;
	}
	*records = (struct unread_records){0};
}

/* Writes the record into memory of its own. */
static int unread_copy(struct unread_record *record, const msgpack_object *value)
{
	struct message_writer w;
	size_t begin;

	message_writer_init(&w, MESSAGE_BODY_MAX);
	message_begin_array(&w, NULL);
	begin = w.buffer.size;
	message_put_object(&w, NULL, value);
	record->bytes = w.buffer.size - begin;
	record->data = w.error ? NULL : malloc(record->bytes + 1);
	if (record->data)
		memcpy(record->data, w.buffer.data + begin, record->bytes);
	message_writer_clear(&w);
	return record->data ? 0 : -ENOMEM;
}

int taking_leave(struct taking *t, const char *array, const msgpack_object *value)
{
	struct unread_records *records = t->into->unread;
	struct unread_record *record = calloc(1, sizeof(*record));

	if (!record || unread_copy(record, value) < 0) {
		free(record);
		return taking_no_memory(t->error);
	}
	record->array = array;
	record->why = *t->error;
	if (records->last)
		records->last->next = record;
	else
		records->first = record;
	records->last = record;
	records->count++;
	return 0;
}

int taking_no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
}

int taking_close_model(struct taking *t, const char *model, const struct model_owner *owner,
		       const struct place *place, const struct error *why)
{
	const struct model_owner operators = {true, true, 0};
	struct error none;
	int r = taking_wrong(t, place, why);

	if (r != -EUCLEAN)
		return r;
	if (!model || name_wrong(model))
		registry_note_unnamed(t->into->registry);
	else if (registry_adopt_owner(t->into->registry, model, owner ? owner : &operators, &none) < 0)
		return taking_no_memory(t->error);
	return r;
}

int taking_refused(struct taking *t, const struct error *why)
{
	if (why->code == -ENOMEM)
		return taking_no_memory(t->error);
	return error_set(t->error, -EUCLEAN, NULL, "the state: %s", why->message);
}

void place_name(struct place *place, const char *model, const char *tag)
{
	snprintf(place->what, sizeof(place->what), " (%s@%s)", model ? model : "", tag ? tag : "");
}

int taking_keep_lost(struct taking *t, const struct version_id *id, struct error *error)
{
	if (t->lost_count == t->lost_room) {
		uint64_t room = t->lost_room ? 2 * t->lost_room : 16;
		struct version_id *lost = reallocarray(t->lost, room, sizeof(*lost));

		if (!lost)
			return taking_no_memory(error);
		t->lost = lost;
		t->lost_room = room;
	}
	t->lost[t->lost_count++] = *id;
	return 0;
}

bool taking_is_lost(const struct taking *t, const struct version_id *id)
{
	for (uint64_t i = 0; i < t->lost_count; i++) {
		if (version_id_equal(&t->lost[i], id))
			return true;
	}
	return false;
}

/* ---- names of descriptors: an index has a name of its own; a segment may be of several versions ---- */

/* Sets *ret to the name's slot, which is empty if the name is new. */
static int look_up(struct taking *t, uint64_t name, struct taken_name **ret, struct error *error)
{
	uint64_t i = name % NAME_SLOTS;

	if (name == 0 || name > STORE_NAME_MAX)
		return error_set(error, -EINVAL, NULL, "no descriptor has the name %llu",
				 (unsigned long long)name);
	while (t->names[i].name && t->names[i].name != name)
		i = (i + 1) % NAME_SLOTS;
	*ret = &t->names[i];
	if (!t->names[i].name && t->name_count == STORE_FDS_MAX)
		return error_set(error, -EDQUOT, NULL, "more than %u descriptors", STORE_FDS_MAX);
	return 0;
}

static int twice(uint64_t name, struct error *error)
{
	return error_set(error, -EEXIST, NULL, "two descriptors are named %llu", (unsigned long long)name);
}

static void taking_add_name(struct taking *t, struct taken_name *slot, const struct taken_name *what)
{
	*slot = *what;
	slot->version = t->version;
	t->name_count++;
	if (what->name > t->greatest_name)
		t->greatest_name = what->name;
}

int taking_index(struct taking *t, uint64_t name, struct error *error)
{
	struct taken_name *slot;
	int r = look_up(t, name, &slot, error);

	if (r == 0 && slot->name)
		r = twice(name, error);
	if (r == 0)
		taking_add_name(t, slot, &(struct taken_name){.name = name});
	return r;
}

/* Of another version that was read before. */
static int share(struct taking *t, struct taken_name *slot, const struct taken_name *like, uint64_t bytes,
		 struct error *error)
{
	if (!slot->segment || slot->version == t->version)
		return twice(like->name, error);
	if (slot->segment->bytes != bytes)
		return error_set(error, -EINVAL, NULL,
				 "the segment named %llu has %llu bytes, and %llu in another version",
				 (unsigned long long)like->name, (unsigned long long)bytes,
				 (unsigned long long)slot->segment->bytes);
	if (slot->device != like->device)
		return error_set(error, -EINVAL, NULL,
				 "the segment named %llu is on another device in another version",
				 (unsigned long long)like->name);
	if (!slot->by_operator || !like->by_operator)
		return error_set(error, -EINVAL, NULL,
				 "the segment named %llu is of two versions, and not both are an operator's",
				 (unsigned long long)like->name);
	slot->version = t->version;
	return 0;
}

int taking_segment(struct taking *t, const struct taken_name *like, uint64_t bytes, struct segment **ret,
		   struct error *error)
{
	struct taken_name *slot, what = *like;
	int r = look_up(t, like->name, &slot, error);

	if (r < 0)
		return r;
	if (slot->name) {
		r = share(t, slot, like, bytes, error);
	} else {
		what.segment = segment_new(-1, bytes, like->name);
		if (!what.segment)
			return taking_no_memory(error);
		what.segment->uses++;
		taking_add_name(t, slot, &what);
	}
	if (r == 0)
		*ret = slot->segment;
	return r;
}

void taking_clear_names(struct taking *t)
{
	for (uint32_t i = 0; i < NAME_SLOTS; i++) {
		if (t->names[i].segment)
			segment_drop(t->names[i].segment);
	}
}
