/* What must outlive the process, as bytes in one memfd that the fd store keeps: two
 * slots, written in turn, each with a generation and a digest. The younger valid one counts, so a
 * write that a kill tore leaves the one before it. What the bytes say is snapshot.h's.
 *
 * A slot begins with 56 bytes, little-endian, the same in every format: magic "GPUWMST" and a zero, format u32,
 * slots u32 (2), generation u64 (from 1), bytes u64 of the payload, digest 16, reserved 8; the payload follows.
 * The digest (proto/digest.h) is of the header, with zeros in its own place, and the payload. Slots begin at 0 and
 * at 56 bytes + 64 MiB.
 */
#ifndef GPUWM_DAEMON_STATE_H
#define GPUWM_DAEMON_STATE_H

#include "../proto/errors.h"

#include <stddef.h>
#include <stdint.h>

/* Of the payload: what this program writes. It reads this one and every one before; tests build the next. */
#ifndef STATE_FORMAT
#define STATE_FORMAT 1
#endif

struct state;

/* A new memfd without a valid slot: written before it is stored. -errno. */
int state_new(struct state **ret);
/* Around a memfd that the store kept; writes nothing. Takes fd when it succeeds: one that is not
 * ours is not closed here, which may take for ever. -EUCLEAN: it is not ours, no slot is valid, or the
 * younger is of a newer format (says both numbers); any other -errno: the calls that tell failed. Does not block, whatever fd is. */
int state_open(int fd, struct state **ret, struct error *error);
/* Closes the descriptor. NULL is fine. Always NULL. */
struct state *state_free(struct state *state);
int state_fd(const struct state *state);

/* The younger slot's payload (malloced, the caller's) and format. -ENOENT: never written; -EIO, -ENOMEM. */
int state_read(const struct state *state, void **ret_data, size_t *ret_bytes, uint32_t *ret_format);
/* Into the older slot: when this returns 0 a kill at any later instruction loses nothing of it.
 * -EMSGSIZE: above MESSAGE_BODY_MAX; else -errno of the write, and what was there before counts. */
int state_write(struct state *state, const void *data, size_t bytes);

#endif
