/* What is asked of the folder's file system while the loop waits for it, for a while. */
#include "descriptions_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* When gpuwmd starts, nobody waits for it yet. Later all of its clients do. */
#define START_WAIT_MS 5000
#define WAIT_MS 1000

#define REMEDY "set another folder in [tiers] of the configuration, or none; then gpuwmctl reload"
#define HANGS "does its server run? When it answers, restart gpuwmd, or " REMEDY

void folder_call_free(struct folder_call *call)
{
	if (call->folder >= 0)
		close(call->folder);
	if (call->lock >= 0)
		close(call->lock);
	description_file_close(&call->reading);
	if (call->batch)
		description_batch_free(call->batch);
	free(call->ids);
	free(call);
}

static void call_drop(struct folder_ask *ask)
{
	folder_call_free((struct folder_call *)ask);
}

struct folder_call *folder_call_new(const struct descriptions *d, void (*run)(struct folder_ask *ask))
{
	struct folder_call *call = calloc(1, sizeof(*call));

	if (!call)
		return NULL;
	snprintf(call->path, sizeof(call->path), "%s", d->path);
	call->ask = (struct folder_ask){.path = call->path, .run = run, .drop = call_drop};
	call->is_late = d->is_late;
	call->lock = call->reading.fd = -1;
	call->folder = d->folder >= 0 ? fcntl(d->folder, F_DUPFD_CLOEXEC, 0) : -1;
	if (d->folder < 0 || call->folder >= 0)
		return call;
	free(call);
	return NULL;
}

int folder_call_ask(const struct descriptions *d, struct folder_call *call, struct error *error)
{
	int r = call ? folder_ask(&call->ask, d->is_late ? WAIT_MS : START_WAIT_MS) : -ENOMEM;

	if (r == -ETIMEDOUT)
		return error_set(error, r, HANGS, "the file system of %s does not answer", d->path);
	return r < 0 ? error_set(error, r, REMEDY, "%s can't be looked at: %s", d->path, strerror(-r)) : 0;
}

static void read_run(struct folder_ask *ask)
{
	struct folder_call *call = (struct folder_call *)ask;

	description_file_open(call->folder, call->name, call->kind, &call->reading, &call->error);
}

int descriptions_read(const struct descriptions *d, const char *name, enum description_kind kind,
		      struct description_reading *ret, struct error *error)
{
	struct folder_call *call = folder_call_new(d, read_run);
	int r;

	if (call) {
		snprintf(call->name, sizeof(call->name), "%s", name);
		call->kind = kind;
	}
	r = folder_call_ask(d, call, error);
	if (r < 0)
		return r;
	*error = call->error;
	*ret = call->reading;
	call->reading = (struct description_reading){.fd = -1};
	folder_call_free(call);
	return error->code;
}

static void rename_run(struct folder_ask *ask)
{
	struct folder_call *call = (struct folder_call *)ask;

	if (renameat(call->folder, call->name, call->folder, call->aside) < 0)
		error_set(&call->error, -errno, NULL, "%s", strerror(errno));
}

int descriptions_rename(const struct descriptions *d, const char *name, const char *aside, struct error *error)
{
	struct folder_call *call = folder_call_new(d, rename_run);
	int r;

	if (call) {
		snprintf(call->name, sizeof(call->name), "%s", name);
		snprintf(call->aside, sizeof(call->aside), "%s", aside);
	}
	r = folder_call_ask(d, call, error);
	if (r < 0)
		return r;
	*error = call->error;
	folder_call_free(call);
	return error->code;
}

static void write_run(struct folder_ask *ask)
{
	description_batch_write(((struct folder_call *)ask)->batch);
}

int descriptions_write(const struct descriptions *d, struct description_batch *batch, struct error *error)
{
	struct folder_call *call = folder_call_new(d, write_run);
	int r;

	if (call) {
		call->batch = batch;
		batch->folder = call->folder;
	} else {
		description_batch_free(batch);
	}
	r = folder_call_ask(d, call, error);
	if (r < 0)
		return r;
	call->batch = NULL;
	folder_call_free(call);
	return 0;
}

static void look_run(struct folder_ask *ask)
{
	struct folder_call *call = (struct folder_call *)ask;
	struct stat used, there;

	call->has_gone = fstat(call->folder, &used) < 0 || stat(call->path, &there) < 0 ||
			 used.st_dev != there.st_dev || used.st_ino != there.st_ino;
}

int descriptions_look_for(const struct descriptions *d, bool *ret_gone, struct error *error)
{
	struct folder_call *call = folder_call_new(d, look_run);
	int r = folder_call_ask(d, call, error);

	if (r < 0)
		return r;
	*ret_gone = call->has_gone;
	folder_call_free(call);
	return 0;
}

static void unlock_run(struct folder_ask *ask)
{
	close(((struct folder_call *)ask)->unlocks);
}

void descriptions_unlock(struct descriptions *d)
{
	struct folder_call *call = folder_call_new(d, unlock_run);
	struct error error;

	if (call)
		call->unlocks = d->lock;
	d->lock = -1;
	if (folder_call_ask(d, call, &error) == 0)
		folder_call_free(call);
}
