/* The log of changes: one line for each change that a client made, or that gpuwmd refused it, and the same as an event for operators
 * and observers. Attaching and releasing are no changes. */
#ifndef GPUWM_DAEMON_AUDIT_H
#define GPUWM_DAEMON_AUDIT_H

#include "../../proto/errors.h"
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

/* Logs the change of the session's peer, and tells it as an event. error NULL: it is done; else gpuwmd has refused it. What users
 * other than operators do has a rate, as complaints have; lines above it are counted, and have no event. */
void audit_tell(struct session *session, const struct audit *audit, const struct error *error);
/* The same for a user whose process has left since. */
void audit_tell_of_user(struct clients *clients, uid_t uid, const struct audit *audit,
			const struct error *error);

#endif
