/* The kinds of jobs, and what the loader reports at the end of one. Every kind runs to its end in the main thread (standby.c). */
#ifndef GPUWM_LOADER_JOBS_H
#define GPUWM_LOADER_JOBS_H

#include "prepare.h"
#include "job.h"
#include "check.h"

struct share;

/* ---- load ----
 *
 * The load job: a source becomes a version, on one device or on several.
 *
 *   main thread: open, plan, begin each publish, create and map memory → copy → check → hand in
 *   beside it:   contexts, buffers (prepare.h) ────────────────────────┤
 *                    └ readers fill the first buffers (copy/copy.h) ───┘ */

/* Loads a version: opens the source, publishes it on each device through the library, copies,
 * seals, verifies what lies on GPUs, and hands it to gpuwmd. Afterwards this process holds none of
 * its memory. `prepare` was started for this job. It belongs to the caller, who ends it after
 * gpuwmd was told the result, since ending it takes time.
 *
 * Returns 0. Fails with the error of any of its steps, with -ECANCELED, and with -ECONNRESET. */
int load_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error);

/* What a load would take. */
struct load_plan {
	uint64_t tensors, files, bytes;
	/* how many bytes of the files are in the page cache, estimated from samples */
	uint64_t cached;
	struct {
		uint64_t bytes, segments;
	} devices[PARTS_PER_VERSION_MAX]; /* with the names that the job has */
	size_t device_count;
	uint64_t parts[PARTS_PER_VERSION_MAX]; /* the bytes of each, in the order of their publishes */
	size_t part_count;
};

/* Opens the source and makes the plan, and creates neither memory nor contexts. Returns 0 and sets
 * *ret. Fails as load_run does. */
int load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error);

/* ---- load from a peer (peer/peer_load.c) ----
 *
 * A load whose source is a peer: the new version is an exact copy of the peer's, part by part.
 *
 *   main thread: ask for index and sums, compare the fingerprint, begin each publish, make memory ── watch ── seal, check, hand in
 *   beside it:   a thread for each part (peer_fetch.c), threads that compare pieces (peer_verify.c), and a server for the next
 *                taker (peer_serve.c) */

/* Loads job->source, for which peer_source returns true. Returns 0. Fails as load_run does, and with
 *   -EBADMSG  The fingerprint is not the one that was expected, or a peer sent other bytes.
 *   -ENOKEY   This node has no keys for peers.
 *   -ENOTSUP  This gpuwm has no TLS, or no transport (peer/wire.h).
 *   and as peer_offer_take and peer_take */
int peer_load_run(const struct job *job, struct work *work, struct error *error);

/* Asks the peer for the version, and sets *ret to what the load would do. Returns 0. Fails as peer_load_run does. */
int peer_load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error);

/* ---- move (move/move.c) ----
 *
 * The move job: one part of a version goes from one tier to another.
 *
 *   device → host    pinned buffers → memfds → sealed, digested
 *   host → device    memfds → pinned buffers → new memory → digested there
 *   files → either   as a load, to the places that the index says
 *   either → files   the files are read and digested; nothing is written
 *
 * The part that the job came with is only read, so a move that fails leaves it as it was. */

/* Moves the job's part, and hands the new memory to gpuwmd. `prepare` was started for this job; NULL: the job needs no GPU. When the
 * function returns, this process holds none of the new memory.
 *
 * Returns 0. Fails with
 *   -EBADMSG     Bytes are not those of the index. If the part's own memory differs, work->damaged is its segment; otherwise the
 *                files changed, and the message names one of them.
 *   -ENOENT      A file is missing.
 *   -EINVAL      The part can't lie on the job's tier or device.
 *   -ENOSPC      There is no room for the new memory.
 *   -EIO         Memory or a file can't be read.
 *   -ECANCELED, -ECONNRESET, and the codes of its steps. */
int move_run(const struct job *job, struct work *work, struct prepare *prepare, struct error *error);

/* ---- verify: compares the memory of a version with its index ---- */

/* Maps the job's part and reads all of it, at the job's pace. A note says bytes, time and speed.
 *
 * Returns 0. Fails with -EBADMSG if the memory differs, and only then; the message names the tensor
 * and both digests, or the bytes that are not zero. Fails with -EIO or a similar code if the memory
 * can't be mapped or read, and with -ECANCELED and -ECONNRESET (see work_stopped). */
int verify_run(const struct job *job, struct work *work, struct error *error);

/* ---- region: its memory is made here, and handed over to gpuwmd ---- */

/* Makes memory of the job's bytes, rounded up to the device's granularity, that reads as zeros. Sends its descriptor to gpuwmd with
 * loader_region, and waits until gpuwmd has it. This process keeps nothing of it. Returns 0. Fails with -ENOSPC if there is no room,
 * with the codes of memory_ops, with the code of gpuwmd's refusal, and as work_phase does. */
int region_run(const struct job *job, struct work *work, struct error *error);

/* ---- hold: a copy of a part for processes that can't take descriptors (daemon/ledger/ipc_copy.h) ---- */

struct hold;

/* Runs a job of the kind `hold`: checks the part, copies it to memory of cuMemAlloc, compares the copy with the digests of the
 * index, and hands gpuwmd the handles of its segments and of an event behind the copying. Returns 0 and sets *ret_hold: the copy
 * is there until hold_end. This thread is in the device's context until then. Fails with -ENOTSUP (the device or the driver has no
 * legacy IPC), -ENOSPC (no memory is left on the device), -EIO (also if the copy differs from the index), and the codes of
 * work_phase. */
int hold_run(const struct job *job, struct work *work, struct hold **ret_hold, struct error *error);
/* Fails with -EIO if the context of the copy can't be used any more. */
int hold_check(const struct hold *hold, struct error *error);
/* Frees the copy. Other processes must not use it any more. Returns NULL; NULL is fine. */
struct hold *hold_end(struct hold *hold);

/* ---- reports (report.c) ----
 *
 * What a loader reports at the end of a job: that a part is checked, that the job is done. */

/* Sends loader_checked: passes the descriptors of a checked part to gpuwmd and waits until gpuwmd
 * has them. The caller keeps its own. share: which segments are those of the version that the job
 * shares; NULL: none. Returns 0. Fails with the code of gpuwmd's refusal, or with
 * -ECONNRESET. */
int report_checked(struct work *work, const struct version_id *publish, const struct check_part *part,
		   const struct check_result *result, const struct share *share, struct error *error);

/* Sends loader_moved: passes the segments of a part that was moved to gpuwmd, or none, and waits until
 * gpuwmd has them. The caller keeps its own. Returns 0. Fails as report_checked does. */
int report_moved(struct work *work, const struct job *job, const struct part *part, struct error *error);

/* Sends loader_done, with the error if its code is not 0, and with the segment that a verify found to
 * be damaged, and with the plan if it is not NULL (of a
 * dry run of this job). keeps: the loader offers to stay with its contexts for the next load.
 * Returns 0 and sets *ret_stays to whether gpuwmd wants that. Fails with -ECONNRESET. */
int report_done(const struct work *work, const struct error *error, const struct job *job,
		const struct load_plan *plan, bool keeps, bool *ret_stays);

/* Sends loader_warm, with the error if its code is not 0. Returns 0. Fails with -ECONNRESET. */
int report_warm(struct connection *connection, const struct error *error);

#endif
