/* What the files that read a state share: its errors, and the list of versions that are lost. */
#include "snapshot_internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

int taking_wrong(struct taking *t, const struct place *place, const struct error *why)
{
	if (why->code == -ENOMEM || why->code == -EAGAIN)
		return error_set(t->error, why->code, why->detail, "%s", why->message);
	return error_set(t->error, -EUCLEAN, NULL, "the state's %s[%u]%s: %s", place->array, place->position,
			 place->what, why->message);
}

int taking_no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
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
