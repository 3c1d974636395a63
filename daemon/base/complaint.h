/* Log lines that peers cause, at a rate for each uid and kind: whoever floods gpuwmd does not fill the log. What was
 * left out is counted, and a line says how much it was. */
#ifndef GPUWM_DAEMON_COMPLAINT_H
#define GPUWM_DAEMON_COMPLAINT_H

#include "log.h"

#include <sys/types.h>
#include <uv.h>

enum complaint_kind {
	COMPLAINT_PACKET, /* what is no message, or not allowed in one */
	COMPLAINT_CONNECT, /* connections above the rate, or for which there is no descriptor */
	COMPLAINT_CROWDED, /* descriptors that could not be sent */
	COMPLAINT_LEASES, /* a session ended with leases */
	COMPLAINT_FAILED, /* a version or a job failed */
	COMPLAINT_FORCED, /* a user retires a version by force */
	COMPLAINT_UNWATCHED, /* a process may map what was revoked, and its end can't be watched */
	COMPLAINT_UNTOLD, /* gpuwmd did what was asked, and could not send the answer */
	COMPLAINT_KINDS,
};

struct complaints;

/* NULL: out of memory. */
struct complaints *complaints_new(uv_loop_t *loop);
/* Tells what was left out so far, and closes the timer; then, after the loop, the rest goes. NULL is fine for both. */
void complaints_end(struct complaints *complaints);
struct complaints *complaints_free(struct complaints *complaints);

/* Logs the line, or only counts it if the user is above the rate. COMPLAINT_LEASES and COMPLAINT_FORCED are logged as
 * information, all others as warnings. */
void complain(struct complaints *complaints, uid_t uid, enum complaint_kind kind, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
