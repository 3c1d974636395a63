#include "descriptions_internal.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The state may be saved thousands of times a second, and a look goes through all versions: 1 ms for 1,000 of them. */
#define LOOK_PAUSE_MS 100
/* After an error: a disk that is full is full for longer. */
#define AGAIN_MS 10000
/* A disk that is busy answers sooner. */
#define STALLED_MS 5000

static void descriptions_look(struct descriptions *d);

struct descriptions *descriptions_new(uv_loop_t *loop, struct ledger *ledger)
{
	struct descriptions *d = calloc(1, sizeof(*d));

	if (!d)
		return NULL;
	d->timer = malloc(sizeof(*d->timer));
	if (!d->timer) {
		free(d);
		return NULL;
	}
	uv_timer_init(loop, d->timer);
	uv_unref((uv_handle_t *)d->timer);
	d->timer->data = d;
	d->loop = loop;
	d->ledger = ledger;
	d->folder = d->lock = -1;
	return d;
}

static void open_late(struct descriptions *d, const char *path)
{
	uint64_t none;

	descriptions_open_now(d, path);
	if (d->is_late)
		descriptions_take(d, false, &none);
	d->due = true;
	d->looked_ms = 0;
}

/* Returns whether the file system answers, and sets *ret_gone then. If it does not, descriptions_error says so until it does. */
static bool folder_answers(struct descriptions *d, bool *ret_gone)
{
	struct error error;

	if (descriptions_look_for(d, ret_gone, &error) < 0) {
		if (d->error.code != error.code)
			descriptions_fail(d, &error);
		return false;
	}
	if (d->error.code == -ETIMEDOUT) {
		log_info("the file system of %s answers again", d->path);
		d->error.code = 0;
	}
	return true;
}

void descriptions_open(struct descriptions *d, const char *path)
{
	bool has_gone;

	if (d->is_frozen)
		return;
	if (d->is_writing) {
		snprintf(d->next_path, sizeof(d->next_path), "%s", path);
		d->reopens = true;
		return;
	}
	if (d->folder >= 0 && strcmp(d->path, path) == 0 && (!folder_answers(d, &has_gone) || !has_gone)) {
		d->due = d->due || d->error.code; /* try again */
		descriptions_judge(d);
		d->looked_ms = 0;
		return;
	}
	open_late(d, path);
}

void descriptions_begin(struct descriptions *d)
{
	d->is_late = true;
}

void descriptions_mark(struct descriptions *d)
{
	d->due = true;
}

/* ---- batches ---- */

static int note_files(struct descriptions *d, const struct description_batch *batch)
{
	int r = batch->result;

	for (size_t i = 0; i < batch->file_count; i++) {
		const struct written_file *file = &batch->files[i];
		struct described *on_disk = file->result == 0 ? described_add(d, &file->id) : NULL;

		if (on_disk)
			on_disk->key = file->key;
		else if (r == 0)
			r = file->result < 0 ? file->result : -ENOMEM;
	}
	return r;
}

static void note_names(struct descriptions *d, struct description_batch *batch)
{
	for (size_t i = 0; i < batch->removed_count; i++) {
		struct described *file = described_find(d, &batch->removed[i]);

		if (file)
			described_remove(d, file);
	}
	for (struct described *file = d->files; file; file = file->hh.next)
		file->is_listed = !file->is_left;
	free(d->names);
	d->names = batch->names;
	d->names_bytes = batch->names_bytes;
	batch->names = NULL;
}

static void set_result(struct descriptions *d, int r)
{
	struct error error;
	const bool failed_before = d->error.code == r;

	if (r == 0) {
		if (d->error.code)
			log_info("versions are described in %s again", d->path);
		d->error.code = 0;
		return;
	}
	error_set(&error, r,
		  "correct the cause; gpuwmd tries again every 10 seconds, and at once after gpuwmctl reload",
		  "descriptions can't be written into %s: %s", d->path, strerror(-r));
	if (failed_before)
		d->error = error;
	else
		descriptions_fail(d, &error);
}

static void descriptions_note(struct descriptions *d, struct description_batch *batch)
{
	const bool is_names = batch->names;
	int r = note_files(d, batch);

	if (is_names && r == 0)
		note_names(d, batch);
	description_batch_free(batch);
	if (r < 0 || !d->names_only) /* else the error of the files stays */
		set_result(d, r);
	d->names_only = r < 0 && !is_names;
}

int descriptions_write_names(struct descriptions *d)
{
	struct description_batch *batch;
	struct error error;

	d->names_only = true; /* the batch leaves out what is due of files */
	batch = description_batch_next(d, &error);
	if (batch && descriptions_write(d, batch, &error) == 0)
		descriptions_note(d, batch);
	else if (error.code)
		descriptions_fail(d, &error);
	d->names_only = false;
	return d->error.code;
}

static bool has_stalled(const struct descriptions *d)
{
	return clock_steady_ms() - d->writing_ms >= STALLED_MS;
}

static void tell_stalled(struct descriptions *d)
{
	error_set(&d->stalled, -ETIMEDOUT, "does its server run? gpuwmd goes on when it answers",
		  "descriptions are not written: the file system of %s has not answered for %llu s", d->path,
		  (unsigned long long)(clock_steady_ms() - d->writing_ms) / 1000);
}

static void note_stalled(struct descriptions *d)
{
	tell_stalled(d);
	log_warning("%s: %s", d->stalled.message, d->stalled.detail);
}

static void note_answer(struct descriptions *d)
{
	if (d->stalled.code)
		log_info("the file system of %s answers again", d->path);
	d->stalled.code = 0;
}

static void write_rest(struct descriptions *d);

static void on_write(uv_work_t *work)
{
	description_batch_write((struct description_batch *)work);
}

static void on_written(uv_work_t *work, int status)
{
	struct description_batch *batch = (struct description_batch *)work;
	struct descriptions *d = batch->descriptions;

	(void)status; /* nobody cancels it */
	d->is_writing = false;
	note_answer(d);
	descriptions_note(d, batch);
	if (d->has_ended) {
		write_rest(d);
		return;
	}
	uv_timer_stop(d->timer);
	if (d->reopens) {
		d->reopens = false;
		descriptions_open(d, d->next_path);
	}
	d->due = true;
	if (!d->error.code || d->names_only)
		descriptions_look(d);
}

/* Returns false if it could not begin; then the batch is gone. */
static bool batch_begin(struct descriptions *d, struct description_batch *batch)
{
	d->is_writing = uv_queue_work(d->loop, &batch->work, on_write, on_written) == 0;
	d->writing_ms = clock_steady_ms();
	if (!d->is_writing)
		description_batch_free(batch);
	return d->is_writing;
}

/* Begins the last batches, one after the other. Times of last use have changed without a mark. */
static void write_rest(struct descriptions *d)
{
	struct description_batch *batch;
	struct error error;

	if (d->folder < 0 || !descriptions_judge(d) || (d->error.code && !d->names_only))
		return;
	batch = description_batch_next(d, &error);
	if (batch)
		batch_begin(d, batch);
}

/* ---- looking ---- */

static void descriptions_on_timer(uv_timer_t *timer)
{
	struct descriptions *d = timer->data;
	bool has_gone = false;

	if (d->is_writing) {
		note_stalled(d);
		return;
	}
	if (d->error.code && d->folder >= 0 && !folder_answers(d, &has_gone)) {
		uv_timer_start(timer, descriptions_on_timer, AGAIN_MS, 0);
		return;
	}
	if (has_gone)
		open_late(d, d->path);
	d->looked_ms = 0;
	descriptions_settle(d);
}

static void descriptions_look_later(struct descriptions *d, uint64_t ms)
{
	uv_update_time(d->loop);
	uv_timer_start(d->timer, descriptions_on_timer, ms, 0);
}

static void descriptions_look(struct descriptions *d)
{
	struct description_batch *batch;
	struct error error;

	d->due = false;
	uv_timer_stop(d->timer);
	d->looked_ms = clock_steady_ms();
	if (!descriptions_judge(d)) { /* the next start would believe nothing that is written now */
		d->due = true;
		descriptions_look_later(d, AGAIN_MS);
		return;
	}
	batch = description_batch_next(d, &error);
	if (batch && batch_begin(d, batch)) {
		descriptions_look_later(d, STALLED_MS);
		return;
	}
	d->names_only = false;
	if (error.code)
		descriptions_fail(d, &error);
	else if (d->error.code == -ETIMEDOUT)
		descriptions_look_later(d, AGAIN_MS);
}

void descriptions_settle(struct descriptions *d)
{
	const uint64_t since = clock_steady_ms() - d->looked_ms;
	const bool failed = d->error.code || d->unsafe.code;
	const uint64_t pause = failed && d->looked_ms ? AGAIN_MS : LOOK_PAUSE_MS;

	if (!d->due || d->folder < 0 || d->is_writing || d->has_ended || d->is_frozen)
		return;
	if (since >= pause)
		descriptions_look(d);
	else if (!uv_is_active((uv_handle_t *)d->timer))
		descriptions_look_later(d, pause - since);
}

/* ---- the end ---- */

static void on_timer_closed(uv_handle_t *handle)
{
	free(handle);
}

void descriptions_end(struct descriptions *d)
{
	uv_close((uv_handle_t *)d->timer, on_timer_closed);
	d->has_ended = true;
	if (!d->is_writing && !d->is_frozen)
		write_rest(d);
}

bool descriptions_end_goes_on(struct descriptions *d)
{
	if (d->is_writing && has_stalled(d))
		note_stalled(d);
	return d->is_writing && !has_stalled(d);
}

struct descriptions *descriptions_free(struct descriptions *d)
{
	if (!d)
		return NULL;
	descriptions_close(d);
	free(d);
	return NULL;
}

int descriptions_freeze(struct descriptions *d, struct error *error)
{
	const struct error *wrong = descriptions_error(d);

	if (!d->path[0])
		return error_set(error, -ENOENT, "folder in [tiers] of the configuration names one",
				 "there are no descriptions: no folder for them is configured");
	if (wrong) {
		*error = *wrong;
		return error->code;
	}
	if (descriptions_pending(d))
		return error_set(error, -EBUSY, "repeat the command in a second",
				 "changes are still being written to the descriptions in %s", d->path);
	d->is_frozen = true;
	return 0;
}

/* ---- looks ---- */

bool descriptions_have(const struct descriptions *d, const struct version *version)
{
	const struct described *file = d->folder >= 0 ? described_find(d, &version->id) : NULL;

	return file && file->is_listed;
}

uint64_t descriptions_count(const struct descriptions *d)
{
	uint64_t count = 0;

	for (const struct described *file = d->files; file; file = file->hh.next)
		count += file->is_listed;
	return count;
}

bool descriptions_pending(const struct descriptions *d)
{
	return d->folder >= 0 && (d->due || d->is_writing);
}

const char *descriptions_path(const struct descriptions *d)
{
	return d->path;
}

const struct error *descriptions_error(struct descriptions *d)
{
	const struct error *left = d->left_error.code ? &d->left_error : NULL;

	if (!descriptions_judge(d))
		return &d->unsafe;
	if (d->is_writing && has_stalled(d)) {
		tell_stalled(d);
		return &d->stalled;
	}
	return d->error.code ? &d->error : left;
}
