/* The fd store of the service manager, systemd or gpuwm-keeper: it passes the descriptors that lie there to the next
 * gpuwmd. At each barrier gpuwm-keeper says which descriptors it did not keep; systemd says nothing.
 *
 * Talking to the service manager may block: storing 2,000 descriptors keeps systemd busy for 0.9 s. So gpuwmd does it on
 * the thread pool, one batch at a time, and only at its start, before the loop runs, on the main thread. */
#ifndef GPUWM_DAEMON_STORE_H
#define GPUWM_DAEMON_STORE_H

#include "../../proto/errors.h"

#include <stdint.h>
#include <uv.h>

/* Names there: "g" and at most 11 hexadecimal digits (STORE_NAME_MAX). Short, since the names of all travel
 * in one string of the next start's environment, which is 128 KiB at most. */
#define STORE_NAME_TEXT 13
#define STORE_STATE "gpuwm-state"
void store_name_format(uint64_t name, char text[STORE_NAME_TEXT]);
/* -EINVAL: not one of those. */
int store_name_parse(const char *text, uint64_t *ret_name);

/* How many descriptors the service manager keeps for this process: $FDSTORE, which systemd 254 and
 * gpuwm-keeper set, and our unit for older ones. A full store says nothing, so it is counted here. 0: there
 * is none, or no $NOTIFY_SOCKET. -EINVAL: it is no number. */
int store_limit(uint64_t *ret_limit, struct error *error);

/* One batch of names, and what to do with them. */
struct store_batch;
/* Called on the loop. error NULL: the service manager has processed the whole batch, and has not refused any of it. */
typedef void store_done_fn(void *data, const struct error *error);

/* Room for `count`; confirm_ms: how long the service manager may take. Nothing later can run out of memory. NULL: out of memory. */
struct store_batch *store_batch_new(size_t count, uint64_t confirm_ms);
struct store_batch *store_batch_free(struct store_batch *batch);
/* fd: must stay open until done is called; not looked at where names are removed. */
void store_batch_add(struct store_batch *batch, uint64_t name, int fd);
/* Both take the batch. done may be NULL. */
void store_batch_put(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data);
void store_batch_remove(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data);

/* At start: these wait. Names are any text here. remove: all of them behind one barrier. */
int store_put_now(const char *name, int fd, uint64_t confirm_ms, struct error *error);
int store_remove_now(const char *const *names, size_t count, uint64_t confirm_ms, struct error *error);

#endif
