/* The fd store of the service manager, systemd or gpuwm-keeper: it passes the descriptors that lie there to the next
 * gpuwmd. At each barrier gpuwm-keeper says which descriptors it did not keep; systemd says nothing.
 *
 * Talking to the service manager may block: storing 2,000 descriptors keeps systemd busy for 0.9 s. So gpuwmd does it on
 * the thread pool, one batch at a time, and only at its start, before the loop runs, on the main thread. */
#ifndef GPUWM_DAEMON_STORE_H
#define GPUWM_DAEMON_STORE_H

#include "../../base/errors.h"
#include "../../service/manager.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* A name in the store is "g" and at most 11 hexadecimal digits (STORE_NAME_MAX). It is short because the names of all descriptors
 * are one string of the next start's environment, which may have 128 KiB. */
#define STORE_NAME_TEXT 13
#define STORE_STATE STORE_STATE_NAME
void store_name_format(uint64_t name, char text[STORE_NAME_TEXT]);
/* Fails with -EINVAL if the text is no such name. */
int store_name_parse(const char *text, uint64_t *ret_name);

/* Sets *ret_limit to the number of descriptors that the service manager keeps for this process: $FDSTORE. systemd 254 and
 * gpuwm-keeper set it, and gpuwm's unit sets it for an older systemd. gpuwmd counts descriptors itself, because a full store
 * reports no error. 0: there is no store, or no $NOTIFY_SOCKET. Fails with -EINVAL if it is no number. */
int store_limit(uint64_t *ret_limit, struct error *error);

/* Returns whether gpuwm-keeper has what is stored from another keeper, which takes it back if this gpuwmd can't adopt it
 * (STORE_ADOPT_VARIABLE). */
bool store_is_on_trial(void);
/* Tells the keeper then that everything is adopted, and waits until the other keeper has let go. Call it before anybody is
 * served. */
int store_adopted_now(uint64_t confirm_ms, struct error *error);

/* Names and descriptors that are stored or removed together. */
struct store_batch;
/* Called on the loop. error NULL: the service manager has processed the whole batch, and has not refused any of it. */
typedef void store_done_fn(void *data, const struct error *error);

/* Makes a batch for `count` names. confirm_ms: how long the service manager may take. Returns NULL if there is no memory; the other
 * functions need none. */
struct store_batch *store_batch_new(size_t count, uint64_t confirm_ms);
struct store_batch *store_batch_free(struct store_batch *batch);
/* Adds a name. fd must stay open until `done` is called; it does not matter if the name is to be removed. */
void store_batch_add(struct store_batch *batch, uint64_t name, int fd);
/* Store or remove what is in the batch, which they take over, on the thread pool. done may be NULL. */
void store_batch_put(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data);
void store_batch_remove(struct store_batch *batch, uv_loop_t *loop, store_done_fn *done, void *data);

/* The same at start, without the loop: these functions wait. Names may be any text. store_remove_now sends one barrier after all
 * names. */
int store_put_now(const char *name, int fd, uint64_t confirm_ms, struct error *error);
int store_remove_now(const char *const *names, size_t count, uint64_t confirm_ms, struct error *error);

#endif
