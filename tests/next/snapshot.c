/* Format 2 of the state, which there is for tests only: one key more than format 1. The linker puts
 * these around daemon/restart/snapshot_*.c. */
#include "../../daemon/restart/snapshot.h"
#include "../../daemon/restart/state.h"

#include <assert.h>
#include <errno.h>

static_assert(STATE_FORMAT == 2, "the next version is built with it");

void __real_snapshot_put(struct message_writer *w, const struct snapshot *snapshot);
void __wrap_snapshot_put(struct message_writer *w, const struct snapshot *snapshot);
int __real_snapshot_take(const struct snapshot_stored *stored, const struct snapshot_fds *fds,
			 struct snapshot *into, uint64_t *ret_lost, struct error *error);
int __wrap_snapshot_take(const struct snapshot_stored *stored, const struct snapshot_fds *fds,
			 struct snapshot *into, uint64_t *ret_lost, struct error *error);

/* Opens the map that was closed, whose count is the fifth byte, for "next": true. */
void __wrap_snapshot_put(struct message_writer *w, const struct snapshot *snapshot)
{
	static const char entry[] = "\xa4next\xc3";

	__real_snapshot_put(w, snapshot);
	if (!w->error && msgpack_sbuffer_write(&w->buffer, entry, sizeof(entry) - 1) < 0)
		w->error = -ENOMEM;
	if (!w->error)
		w->buffer.data[4]++;
}

static int check_next(const struct snapshot_stored *stored, struct error *error)
{
	struct message message;
	struct fields f;
	const char *why;
	bool next = false;
	int r = message_read_body(stored->data, stored->bytes, &message, &why);

	if (r == 0) {
		fields_of(&f, message.body);
		next = fields_bool_or(&f, "next", false);
	}
	message_clear(&message);
	if (r == 0 && next == (stored->format == STATE_FORMAT))
		return 0;
	return error_set(error, -EUCLEAN, NULL, "a state of format %u with%s the key of the next one",
			 stored->format, next ? "" : "out");
}

int __wrap_snapshot_take(const struct snapshot_stored *stored, const struct snapshot_fds *fds,
			 struct snapshot *into, uint64_t *ret_lost, struct error *error)
{
	int r = check_next(stored, error);

	return r < 0 ? r : __real_snapshot_take(stored, fds, into, ret_lost, error);
}
