#include "work.h"

#include "../base/clock.h"
#include "../proto/wire/messages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

static int work_look(struct work *work)
{
	int r = connection_poll(work->connection, 0);

	if (work->cancelled)
		return -ECANCELED;
	return r < 0 ? -ECONNRESET : 0;
}

/* note may be NULL. */
static int work_tell(struct work *work, const char *note)
{
	struct message_writer w;
	int r;

	work->sent_ms = clock_steady_ms();
	message_write_notification(
		&w, &form_loader_progress,
		&(struct loader_progress_params){work->phase, work->done, work->total, note});
	r = connection_notify(work->connection, &w, NULL);
	message_writer_clear(&w);
	return r < 0 ? -ECONNRESET : 0;
}

int work_phase(struct work *work, const char *phase, uint64_t total)
{
	int r;

	work->phase = phase;
	work->done = 0;
	work->total = total;
	r = work_tell(work, NULL);
	return r < 0 ? r : work_look(work);
}

int work_advance(uint64_t bytes, void *user_data)
{
	struct work *work = user_data;
	int r = 0;

	work->done += bytes;
	if (clock_steady_ms() - work->sent_ms >= WORK_TELL_MS)
		r = work_tell(work, NULL);
	return r < 0 ? r : work_look(work);
}

void work_note(struct work *work, const char *format, ...)
{
	char note[TEXT_BYTES_MAX + 1];
	struct error line; /* makes one line of UTF-8, whatever names are in the note */
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(note, sizeof(note), format, arguments);
	va_end(arguments);
	error_set(&line, 0, NULL, "%s", note);
	work_tell(work, line.message);
}

int work_stopped(const struct work *work, int code, struct error *error)
{
	if (code == -ECANCELED)
		return error_set(error, code, NULL, "cancelled while %s", work->phase);
	return error_set(error, code, NULL, "gpuwmd went away while %s", work->phase);
}
