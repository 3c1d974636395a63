/* What the kinds of jobs have of each other: a load from files and from a peer, and what a loader reports. */
#ifndef GPUWM_LOADER_JOBS_H
#define GPUWM_LOADER_JOBS_H

#include "prepare.h"
#include "job.h"
#include "check.h"

#include "../proto/wire/messages_loader.h"

struct peer_settings;
struct roots;
struct share;

/* ---- load (load.c) ----
 *
 *   main thread: open, plan, begin each publish, create and map memory → copy → check → hand in
 *   beside it:   contexts, buffers (prepare.h) ────────────────────────┤
 *                    └ readers fill the first buffers (copy/copy.h) ───┘ */

/* Loads a version: opens the source, publishes it on each device through the library, copies, seals, verifies what lies on GPUs,
 * and hands it to gpuwmd. Afterwards this process holds none of its memory. work->prepare was started for this job. files: the
 * socket that the files come from; -1: they have paths. Of a dry run it makes neither memory nor contexts, but sets work->plan.
 *
 * Returns 0. Fails with the error of any of its steps, with -ECANCELED, and with -ECONNRESET. */
int load_run(const struct job_load_params *params, const struct roots *roots, int files, struct work *work,
	     struct error *error);

/* ---- load from a peer (peer/peer_load.c) ----
 *
 * A load whose source is a peer: the new version is an exact copy of the peer's, part by part.
 *
 *   main thread: ask for index and sums, compare the fingerprint, begin each publish, make memory ── watch ── seal, check, hand in
 *   beside it:   a thread for each part (peer_fetch.c), threads that compare pieces (peer_verify.c), and a server for the next
 *                taker (peer_serve.c) */

/* Loads params->wish.source, for which peer_source returns true. Of a dry run it only asks the peer, and sets work->plan. Returns 0. Fails
 * as load_run does, and with
 *   -EBADMSG  The fingerprint is not the one that was expected, or a peer sent other bytes.
 *   -ENOKEY   This node has no keys for peers.
 *   -ENOTSUP  This gpuwm has no TLS, or no transport (peer/wire.h).
 *   and as peer_offer_take and peer_take */
int peer_load_run(const struct job_load_params *params, const struct peer_settings *settings, struct work *work,
		  struct error *error);

/* ---- a part from a peer again (peer/peer_again.c) ---- */

/* A part that was once taken from a node, and whose memory was lost. */
struct peer_again {
	const struct job_move_params *params; /* with `again` */
	const void *index;
	uint64_t index_bytes;
	const struct memory_device *device; /* open */
	struct memory_segment *
		segments; /* of the sizes that the index names, mapped for writing; not mapped: it is not to come */
};

/* Fills the part's memory from any node that has the version's content: the node that the source names, and all of the settings. If no
 * node has it, asks all of them again for PEER_PATIENCE_MS, because they may be starting as well. Returns 0. Fails as peer_load_run does,
 * with -ENOENT if no node has the content, and with -EBADMSG if a node's version has the fingerprint and another index. */
int peer_again_run(const struct peer_again *again, const struct peer_settings *settings, struct work *work,
		   struct error *error);

/* ---- settings (load_peers.c) ---- */

typedef int peer_settings_fn(const struct peer_settings *settings, struct work *work, void *data,
			     struct error *error);
/* Calls `run` with the settings by which the job asks other nodes: those of this loader's service, or those that came with the job, which
 * may be NULL. Returns what it returned. Fails as peer_settings_read does. */
int with_peer_settings(const struct job_peers *given, struct work *work, peer_settings_fn *run, void *data,
		       struct error *error);

/* ---- plans (report.c) ---- */

/* What a load would take. */
struct load_plan {
	struct plan_params told;
	struct plan_device devices[PARTS_PER_VERSION_MAX];
	uint64_t parts[PARTS_PER_VERSION_MAX]; /* the bytes of each, in the order of their publishes */
	uint32_t part_count;
};

/* Makes a plan without parts for the load's devices, whose names stay the message's. */
void load_plan_begin(struct load_plan *plan, const struct job_load_params *params);
/* Adds the next part. */
void load_plan_add(struct load_plan *plan, uint64_t bytes, uint64_t segments);
/* Sets work->plan to a copy of what is told. Returns 0, or -ENOMEM. */
int load_plan_end(struct load_plan *plan, struct work *work, struct error *error);

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
int report_moved(struct work *work, const struct loader_moved_params *params, const struct part *part,
		 struct error *error);

/* Sends loader_done, with the error if its code is not 0, and with the segment that a verify found to
 * be damaged; otherwise with work->plan. keeps: the loader offers to stay with its contexts for the next load.
 * Returns 0 and sets *ret_stays to whether gpuwmd wants that. Fails with -ECONNRESET. */
int report_done(const struct work *work, const struct error *error, bool keeps, bool *ret_stays);

/* Sends loader_warm, with the error if its code is not 0. Returns 0. Fails with -ECONNRESET. */
int report_warm(struct connection *connection, const struct error *error);

#endif
