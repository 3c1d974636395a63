/* What a loader reports at the end of a job: that a part is checked, that the job is done. */
#ifndef GPUWM_LOADER_REPORT_H
#define GPUWM_LOADER_REPORT_H

#include "check.h"
#include "load.h"
#include "share.h"

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
