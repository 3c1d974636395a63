/* Log lines that peers cause. Each uid and kind has a rate, so that a flood does not fill the log. gpuwmd counts the lines that it
 * leaves out, and logs how many they were. */
#ifndef GPUWM_DAEMON_COMPLAINT_H
#define GPUWM_DAEMON_COMPLAINT_H

#include "../../service/log.h"

#include <stdbool.h>
#include <sys/types.h>
#include <uv.h>

enum complaint_kind {
	COMPLAINT_PACKET, /* what is no message, or not allowed in one */
	COMPLAINT_CONNECT, /* connections above the rate, or for which there is no descriptor */
	COMPLAINT_CROWDED, /* descriptors that could not be sent */
	COMPLAINT_LEASES, /* a session ended with leases */
	COMPLAINT_REGIONS, /* a region ended, or a process that used one exited */
	COMPLAINT_FAILED, /* a version or a job failed */
	COMPLAINT_CHANGED, /* a user changed something (clients/audit.h) */
	COMPLAINT_REFUSED, /* gpuwmd refused a change */
	COMPLAINT_UNWATCHED, /* a process may map what was revoked, and its end can't be watched */
	COMPLAINT_UNTOLD, /* gpuwmd did what was asked, and could not send the answer */
	COMPLAINT_KINDS,
};

struct complaints;

/* Returns NULL if there is no memory. */
struct complaints *complaints_new(uv_loop_t *loop);
/* complaints_end logs what was left out so far, and closes the timer. After the loop, complaints_free frees the rest and returns
 * NULL. NULL is fine for both. */
void complaints_end(struct complaints *complaints);
struct complaints *complaints_free(struct complaints *complaints);

/* Returns whether the caller is to log a line of this kind now. If the user is above the rate, counts the line instead. Before the
 * first line after such lines, logs how many they were. */
bool complaint_due(struct complaints *complaints, uid_t uid, enum complaint_kind kind);
/* Logs the line if it is due. COMPLAINT_LEASES and COMPLAINT_REGIONS are logged as information, all others as warnings. */
void complain(struct complaints *complaints, uid_t uid, enum complaint_kind kind, const char *format, ...)
	__attribute__((format(printf, 4, 5)));

#endif
