/* What a job tells at its end: that a part is checked, that the job is done. */
#ifndef GPUWM_LOADER_REPORT_H
#define GPUWM_LOADER_REPORT_H

#include "check.h"
#include "load.h"

/* loader_checked: passes the descriptors of a checked part to gpuwmd and waits
 * until it has them. The caller keeps its own. What gpuwmd refuses, or -ECONNRESET. */
int report_checked(struct work *work, const char *publish, const struct check_part *part,
		   const struct check_result *result, struct error *error);

/* loader_done, with the error unless its code is 0; with the plan of a dry run of this job unless it is
 * NULL. keeps: offers to stay with its contexts for the next load; *ret_stays: gpuwmd wants that. 0, or -ECONNRESET. */
int report_done(struct connection *connection, const struct error *error, const struct job *job,
		const struct load_plan *plan, bool keeps, bool *ret_stays);

/* loader_warm, with the error unless its code is 0. 0, or -ECONNRESET. */
int report_warm(struct connection *connection, const struct error *error);

#endif
