/* What must outlive the process: bytes in one memfd, which the fd store keeps. snapshot.h says what the bytes mean.
 *
 * The memfd has two slots, each with a generation and a digest. gpuwmd writes them in turn, and reads the younger one that
 * is valid. So if a kill interrupts a write, the other slot still has what was written before.
 *
 * A slot begins with a header of 56 bytes, little-endian, the same in every format: magic "GPUWMST" and a zero, format
 * u32, slots u32 (2), generation u64 (from 1), bytes u64 of the payload, digest 16, reserved 8. The payload follows. The
 * digest (proto/index/digest.h) covers the payload and the header, in which the digest itself counts as zeros. The slots begin
 * at 0 and at 56 bytes + 64 MiB.
 *
 * The second slot's last 2 MiB are no payload's: there gpuwmd notes which leases are awake (ledger/awake.h), which changes too often
 * for a slot. They begin at 126 MiB. An older gpuwmd leaves them alone.
 */
#ifndef GPUWM_DAEMON_STATE_H
#define GPUWM_DAEMON_STATE_H

#include "../../base/errors.h"
#include "../../base/limits.h"

#include <stddef.h>
#include <stdint.h>

/* The format of the payload that this program writes. It reads this format and all earlier ones. Tests build the program
 * with the next one. */
#ifndef STATE_FORMAT
#define STATE_FORMAT 1
#endif

/* The largest payload: no slot reaches the notes. */
#define STATE_BYTES_MAX MIB(61)

struct state;

/* Makes a memfd without a valid slot: call state_write before the fd store gets it. Sets *ret, which the caller frees
 * with state_free. -errno. */
int state_new(struct state **ret);
/* Opens a memfd that the fd store kept, and writes nothing. Sets *ret, which the caller frees with state_free. On success
 * the state owns fd; on an error the caller still does, since to close a file that gpuwmd did not make may take for ever.
 * -EUCLEAN: gpuwmd did not make the file, no slot is valid, or the younger slot has a newer format than this program
 * reads (the message has both numbers). Any other -errno: a call that looks at the file failed. Never blocks, whatever
 * file fd is. */
int state_open(int fd, struct state **ret, struct error *error);
/* Frees the state and closes its descriptor. Returns NULL; NULL is fine. */
struct state *state_free(struct state *state);
int state_fd(const struct state *state);
/* Returns the memory for notes, and sets *ret_bytes. It stays mapped as long as the state is there, and has what an earlier gpuwmd wrote;
 * zeros: that was nothing. Returns NULL if it can't be mapped, or if an older gpuwmd's payload lies there. */
void *state_notes(const struct state *state, size_t *ret_bytes);

/* Sets *ret_data to the younger slot's payload, which the caller frees, and *ret_format to its format. -ENOENT: no slot was
 * written yet; -EIO: the memfd can't be read; -ENOMEM. */
int state_read(const struct state *state, void **ret_data, size_t *ret_bytes, uint32_t *ret_format);
/* Writes the payload into the older slot. Once this returns 0, a kill at any later instruction loses nothing of it.
 * -EMSGSIZE: the payload is larger than STATE_BYTES_MAX; any other -errno: the write failed, and the state is what it was
 * before. */
int state_write(struct state *state, const void *data, size_t bytes);

#endif
