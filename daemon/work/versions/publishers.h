/* Publishers from begin to commit: what they hand in or are given, and what becomes of it when they are silent or die. */
#ifndef GPUWM_DAEMON_PUBLISHERS_H
#define GPUWM_DAEMON_PUBLISHERS_H

#include "../../../base/errors.h"
#include "../../ledger/publish.h"
#include "../../ledger/segment.h"

#include <stdbool.h>
#include <stdint.h>

struct hand_in;
struct job;
struct quota_charge;
struct shared_charge;
struct silence;
struct work;

/* ---- silence: silence.c ----
 * Publishers that have begun a part and give no sign of life. gpuwmd fails their version, as an abort would, so that nobody keeps
 * memory from others only by asking for it. */

/* Returns NULL if there is no memory. */
struct silence *silence_new(struct work *work);
/* Returns NULL; NULL is fine. */
struct silence *silence_free(struct silence *silence);

/* Looks at all parts, and sets a timer for the first one that may be silent for too long. Call it when a part was begun or
 * committed, or its publisher has closed the socket to the checker. */
void silence_watch(struct silence *silence);

/* ---- handing in: hand_in.c ----
 * The socket of a publisher until its checker has it. gpuwmd watches for the packet that hands the memory in, and does not read
 * the packet. Only then does the part get a loader, because a checker that waits would keep a loader from other jobs. */

/* Watches the check's publisher_sock. Once the publisher has handed in, the job is ready for a loader. If it
 * closes the socket before that, hand_in_left_ms says when, and silence.c ends the publish a moment later: a process that
 * dies also closes its connection to gpuwmd, and that tells more. Fails with -ENOMEM and -errno. */
int hand_in_await(struct work *work, struct job *job, struct error *error);
/* Ends the watch. Call it before the socket is closed or passed on. Returns NULL; NULL is fine. */
struct hand_in *hand_in_forget(struct hand_in *hand_in);

/* Returns when the publisher closed the socket without handing in, by the steady clock, or 0: it did not. */
uint64_t hand_in_left_ms(const struct hand_in *hand_in);
/* Returns whether what the publisher handed in has not been read by a checker, so that another one can read it. */
bool hand_in_is_unread(const struct job *job);

/* ---- given memory: given.c ----
 * Memory that gpuwmd gives: to the publisher of a small version without a name on host, so that no other process need check
 * what the publisher made. The publisher fills it and seals it. At the commit gpuwmd looks at seals and sizes, and reads nothing.
 * So whoever maps such a version validates its index. */

/* Makes both, empty. Fails with -errno. */
int given_make(struct given *ret, struct error *error);

/* Lists them as what a check found; the caller says layout, content and tensors. They stay the caller's. Fails with -EBADMSG if one of
 * them can still be changed, or the segment is empty, or the index is empty or too large. */
int given_look(const struct given *given, struct publish_checked *ret, struct error *error);

/* ---- death: mourning.c ----
 * Publishers that died before their commit. What was charged for their parts is given back when the process has exited, which
 * its pidfd tells; the connection ends earlier. A process that closed its connection and lives on gives no signs of life any
 * more, so its charges are given back after publish_silence_ms. */

/* Drops one use of each of these charges when the process behind pidfd has exited or lives on for too long. The charge of the
 * publish moves in: the publish counts as open until then, because otherwise a publisher that lives on could make gpuwmd hold
 * any number of pidfds. The pidfd stays the caller's. If pidfd is -1 or there is no memory, the uses are dropped at once, and
 * the charge of the publish stays where it is. */
void mourn(struct work *work, int pidfd, struct shared_charge *const *charges, uint32_t count,
	   struct quota_charge *charge);

/* Drops all of them at once, because gpuwmd ends. */
void mourning_end(struct work *work);

#endif
