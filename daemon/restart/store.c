#include "store.h"

#include "../../base/clock.h"
#include "../../service/manager.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

/* What the service manager is told is tried again while descriptors or memory are short: what is not told stays in the
 * store, or is not kept. 5 times in 300 ms, since a thread of the pool waits meanwhile. */
#define TELL_TRIES 5
#define TELL_PAUSE_MS 20

struct store_entry {
	uint64_t name;
	int fd;
};

struct store_batch {
	uv_work_t work;
	bool put;
	uint64_t confirm_ms;
	store_done_fn *done;
	void *data;
	struct error error;
	size_t count;
	struct store_entry entries[];
};

/* ---- names ---- */

void store_name_format(uint64_t name, char text[STORE_NAME_TEXT])
{
	snprintf(text, STORE_NAME_TEXT, "g%llx", (unsigned long long)(name & STORE_NAME_MAX));
}

int store_name_parse(const char *text, uint64_t *ret_name)
{
	char again[STORE_NAME_TEXT];
	uint64_t name;

	if (text[0] != 'g' || strlen(text) >= STORE_NAME_TEXT)
		return -EINVAL;
	name = strtoull(text + 1, NULL, 16);
	store_name_format(name, again);
	if (name == 0 || strcmp(text, again) != 0)
		return -EINVAL;
	*ret_name = name;
	return 0;
}

int store_limit(uint64_t *ret_limit, struct error *error)
{
	const char *text = getenv("FDSTORE");
	char *end;

	*ret_limit = 0;
	if (!text || !getenv("NOTIFY_SOCKET"))
		return 0;
	errno = 0;
	*ret_limit = strtoull(text, &end, 10);
	if (errno == 0 && *end == '\0' && text[0] >= '0' && text[0] <= '9')
		return 0;
	return error_set(error, -EINVAL, "it is to say the same as FileDescriptorStoreMax= of the unit",
			 "FDSTORE=\"%.64s\" is no number of descriptors", text);
}

/* ---- talking to the service manager ---- */

/* libsystemd gives up at any signal, and a loader that ends is one. On the pool for good: signals are the
 * loop's; at start they come later. */
static void block_signals(sigset_t *ret_before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_BLOCK, &all, ret_before);
}

static bool is_shortage(int r)
{
	return r == -EMFILE || r == -ENFILE || r == -ENOMEM || r == -ENOBUFS || r == -ETOOMANYREFS;
}

/* fd -1: none goes along. */
static int store_tell(const char *name, const char *text, int fd, struct error *error)
{
	int r = 0;

	for (unsigned tries = 0; tries < TELL_TRIES && (tries == 0 || is_shortage(r)); tries++) {
		if (tries > 0)
			poll(NULL, 0, TELL_PAUSE_MS << (tries - 1));
		r = sd_pid_notify_with_fds(0, 0, text, &fd, fd >= 0);
	}
	if (r > 0)
		return 0;
	if (r == 0)
		r = -ENOTCONN; /* no $NOTIFY_SOCKET */
	return error_set(error, -EIO, "is the service manager alive? its log may say more",
			 "%s could not be told to the service manager: %s", name, strerror(-r));
}

/* FDPOLL=0: systemd else watches the descriptor and throws it away at the first hang-up. */
static int store_tell_put(const char *name, int fd, struct error *error)
{
	char text[64];

	snprintf(text, sizeof(text), "FDSTORE=1\nFDNAME=%s\nFDPOLL=0", name);
	return store_tell(name, text, fd, error);
}

static int store_tell_remove(const char *name, struct error *error)
{
	char text[512];

	snprintf(text, sizeof(text), "FDSTOREREMOVE=1\nFDNAME=%s", name);
	return store_tell(name, text, -1, error);
}

/* Reads until the other end is closed. */
static int read_answer(int fd, int64_t deadline, char *ret_answer)
{
	struct pollfd ready = {.fd = fd, .events = POLLIN};
	size_t bytes = 0;

	for (;;) {
		ssize_t got;
		int r = poll(&ready, 1, clock_left(deadline));

		if (r == 0)
			return -ETIMEDOUT;
		if (r < 0)
			return -errno;
		got = read(fd, ret_answer + bytes, STORE_ANSWER_BYTES - bytes);
		if (got < 0)
			return -errno;
		bytes += (size_t)got;
		ret_answer[bytes] = '\0';
		if (got == 0)
			return 0;
	}
}

/* Sends a barrier of sd_notify(3): once it has ended, the service manager has processed every earlier notification. Waits for its
 * end, at most wait_ms. Sets ret_answer, which has room for STORE_ANSWER_BYTES + 1 bytes, to the answer of gpuwm-keeper, which
 * sd_notify_barrier does not read (service/manager.h); "" if the service manager gives none. -ETIMEDOUT; -ENOTCONN: there is
 * no $NOTIFY_SOCKET; -ENODATA: the service manager answers every barrier, but lost this one; any other -errno: a system call
 * failed. The calling thread must have signals blocked. */
static int store_barrier(int64_t wait_ms, char *ret_answer)
{
	const int64_t deadline = clock_deadline(wait_ms);
	int ends[2], r;

	ret_answer[0] = '\0';
	if (pipe2(ends, O_CLOEXEC) < 0)
		return -errno;
	r = sd_pid_notify_with_fds(0, 0, "BARRIER=1", &ends[1], 1);
	close(ends[1]);
	if (r == 0)
		r = -ENOTCONN;
	else if (r > 0)
		r = read_answer(ends[0], deadline, ret_answer);
	close(ends[0]);
	if (r == 0 && getenv(STORE_ANSWER_VARIABLE) && !store_answer_is_whole(ret_answer))
		r = -ENODATA;
	return r;
}

/* One batch at a time is told and confirmed: the answer at a barrier is of all that was told since the one before. */
static pthread_mutex_t telling = PTHREAD_MUTEX_INITIALIZER;

/* Everything that was told before has been processed. */
static int store_confirm(uint64_t confirm_ms, char *ret_answer, struct error *error)
{
	int r = store_barrier(confirm_ms, ret_answer);

	if (r == 0)
		return 0;
	if (r == -ENODATA)
		return error_set(
			error, -EMFILE,
			"raise its RLIMIT_NOFILE (ulimit -n, docker run --ulimit nofile=); its log may say more",
			"gpuwm-keeper has no room for another descriptor: what it was to keep may be lost");
	if (r != -ETIMEDOUT)
		return error_set(
			error, r == -EMFILE || r == -ENFILE ? r : -EIO, NULL,
			"gpuwmd could not ask the service manager whether it keeps what it was to keep: %s",
			strerror(-r));
	return error_set(error, r,
			 "is the service manager alive? store_confirm_ms in [limits] of gpuwmd's configuration "
			 "changes how long it may take",
			 "the service manager did not confirm within %llu ms what it was to keep",
			 (unsigned long long)confirm_ms);
}

/* The answer says why a descriptor is not kept, as gpuwm-keeper's store_add says it. */
static int store_check_kept(const char *answer, const char *name, struct error *error)
{
	int r = store_answer_find(answer, name);

	if (r >= 0)
		return 0;
	if (r == -ENOSPC || r == -E2BIG)
		return error_set(error, -EDQUOT, "retire a version, or raise --store-max of gpuwm-keeper",
				 "gpuwm-keeper does not keep the descriptor %s: its store is full", name);
	if (r == -EMFILE)
		return error_set(
			error, -EMFILE,
			"retire a version, or raise its RLIMIT_NOFILE (ulimit -n, docker run --ulimit nofile=)",
			"gpuwm-keeper does not keep the descriptor %s: it may open no more files", name);
	if (r == -EEXIST)
		return error_set(
			error, -EEXIST, "each segment is to be memory of its own",
			"gpuwm-keeper does not keep the descriptor %s: it is the same open file as another one",
			name);
	return error_set(error, -EIO, "its log says more", "gpuwm-keeper does not keep the descriptor %s: %s",
			 name, strerror(-r));
}

int store_put_now(const char *name, int fd, uint64_t confirm_ms, struct error *error)
{
	char answer[STORE_ANSWER_BYTES + 1];
	sigset_t before;
	int r;

	block_signals(&before);
	pthread_mutex_lock(&telling);
	r = store_tell_put(name, fd, error);
	if (r == 0)
		r = store_confirm(confirm_ms, answer, error);
	if (r == 0)
		r = store_check_kept(answer, name, error);
	pthread_mutex_unlock(&telling);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

int store_remove_now(const char *const *names, size_t count, uint64_t confirm_ms, struct error *error)
{
	char answer[STORE_ANSWER_BYTES + 1];
	sigset_t before;
	int r = 0;

	block_signals(&before);
	pthread_mutex_lock(&telling);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = store_tell_remove(names[i], error);
	if (r == 0 && count > 0)
		r = store_confirm(confirm_ms, answer, error);
	pthread_mutex_unlock(&telling);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

bool store_is_on_trial(void)
{
	return getenv(STORE_ADOPT_VARIABLE) != NULL;
}

int store_adopted_now(uint64_t confirm_ms, struct error *error)
{
	char answer[STORE_ANSWER_BYTES + 1];
	sigset_t before;
	int r;

	block_signals(&before);
	r = store_tell("that everything is adopted", STORE_ADOPTED_TEXT, -1, error);
	if (r == 0)
		r = store_confirm(confirm_ms, answer, error);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return r;
}

/* ---- batches ---- */

struct store_batch *store_batch_new(size_t count, uint64_t confirm_ms)
{
	struct store_batch *batch = calloc(1, sizeof(struct store_batch) + count * sizeof(struct store_entry));

	if (batch)
		batch->confirm_ms = confirm_ms;
	return batch;
}

struct store_batch *store_batch_free(struct store_batch *batch)
{
	free(batch);
	return NULL;
}

void store_batch_add(struct store_batch *batch, uint64_t name, int fd)
{
	batch->entries[batch->count++] = (struct store_entry){name, fd};
}

/* On the pool. */
static void on_work(uv_work_t *work)
{
	struct store_batch *batch = work->data;
	char answer[STORE_ANSWER_BYTES + 1], name[STORE_NAME_TEXT];
	int r = 0;

	block_signals(NULL);
	pthread_mutex_lock(&telling);
	for (size_t i = 0; r == 0 && i < batch->count; i++) {
		store_name_format(batch->entries[i].name, name);
		r = batch->put ? store_tell_put(name, batch->entries[i].fd, &batch->error)
			       : store_tell_remove(name, &batch->error);
	}
	if (r == 0 && batch->count > 0)
		r = store_confirm(batch->confirm_ms, answer, &batch->error);
	for (size_t i = 0; r == 0 && batch->put && i < batch->count; i++) {
		store_name_format(batch->entries[i].name, name);
		r = store_check_kept(answer, name, &batch->error);
	}
	pthread_mutex_unlock(&telling);
}

static void on_worked(uv_work_t *work, int status)
{
	struct store_batch *batch = work->data;

	(void)status; /* nobody cancels */
	if (batch->done)
		batch->done(batch->data, batch->error.code ? &batch->error : NULL);
	free(batch);
}

static void store_batch_run(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data)
{
	batch->done = done;
	batch->data = data;
	batch->work.data = batch;
	uv_queue_work(loop, &batch->work, on_work, on_worked); /* fails without a work function only */
}

void store_batch_put(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data)
{
	batch->put = true;
	store_batch_run(batch, loop, done, data);
}

void store_batch_remove(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data)
{
	batch->put = false;
	store_batch_run(batch, loop, done, data);
}
