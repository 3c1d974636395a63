/* The log of changes. Each change that a client makes, and each one that gpuwmd refuses, is a line in the log, and an event for
 * operators and observers. To attach and to release are not changes. */
#ifndef GPUWM_DAEMON_AUDIT_H
#define GPUWM_DAEMON_AUDIT_H

#include "../../base/errors.h"
#include "../../proto/names.h"

#include <stdbool.h>
#include <sys/types.h>

struct clients;
struct session;
struct version;

/* A path of a source may be cut in the line. */
#define AUDIT_WHAT_BYTES 512
#define AUDIT_OUTCOME_BYTES 256

/* A change that a request asks for. */
struct audit {
	const char *method;
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1]; /* "": it is about none */
	char what[AUDIT_WHAT_BYTES]; /* the arguments, in words: "m@v1 by force" */
	char outcome[AUDIT_OUTCOME_BYTES]; /* what came of it; "": nothing more than that it is done */
	bool has_begun; /* an error means that it failed, not that gpuwmd refused it */
	bool is_late; /* a request that waits is refused late, which is told too */
};

/* Sets model and tag to those of the version. */
void audit_version(struct audit *audit, const struct version *version);
/* Appends to `what`; sets the outcome. A text that is too long is cut. audit NULL: nothing is done. */
void audit_say(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));
void audit_outcome(struct audit *audit, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads which unit the session's process belongs to, once for each session. Call it before the process gets its answer, because
 * it may exit then. */
void audit_read_unit(struct session *session);

/* Logs the change that the session's peer asked for, and emits the event. error NULL: the change is done; else gpuwmd has refused
 * it. Users who are not operators have a rate, as with complaints. Changes beyond the rate are only counted: they have neither a
 * line nor an event. */
void audit_tell(struct session *session, const struct audit *audit, const struct error *error);
/* The same if the process has disconnected meanwhile, so that only its user is known. */
void audit_tell_of_user(struct clients *clients, uid_t uid, const struct audit *audit,
			const struct error *error);

#endif
