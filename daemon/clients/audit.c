#include "audit.h"
#include "../base/complaint.h"
#include "../../service/log.h"
#include "../net/peer.h"
#include "../../proto/wire/messages.h"
#include "../../base/utf8.h"
#include "clients.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void audit_version(struct audit *audit, const struct version *version)
{
	snprintf(audit->model, sizeof(audit->model), "%s", model_name(version->model));
	snprintf(audit->tag, sizeof(audit->tag), "%s", version->tag);
}

void audit_say(struct audit *audit, const char *format, ...)
{
	size_t used = audit ? strlen(audit->what) : 0;
	va_list arguments;

	if (!audit)
		return;
	va_start(arguments, format);
	vsnprintf(audit->what + used, sizeof(audit->what) - used, format, arguments);
	va_end(arguments);
	utf8_make_line(audit->what);
}

void audit_outcome(struct audit *audit, const char *format, ...)
{
	va_list arguments;

	if (!audit)
		return;
	va_start(arguments, format);
	vsnprintf(audit->outcome, sizeof(audit->outcome), format, arguments);
	va_end(arguments);
	utf8_make_line(audit->outcome);
}

/* Without memory for it the line has no unit. */
void audit_read_unit(struct session *session)
{
	char unit[NAME_BYTES_MAX + 1];
	struct client *client = session->client;

	if (client->unit)
		return;
	peer_unit(&session->peer, unit);
	client->unit = strdup(unit);
}

/* ---- the two forms ---- */

/* A command, a pid and a unit. */
#define WHO_BYTES (PEER_COMMAND_BYTES + NAME_BYTES_MAX + 40)

/* What a line and an event say. Texts that are missing are NULL. */
struct told {
	const struct peer *peer;
	const char *command, *unit, *method, *model, *tag, *what, *result, *code, *message;
};

static const char *or_null(const char *text)
{
	return text[0] ? text : NULL;
}

static void tell_event(struct event_ring *events, const struct told *told)
{
	event_emit(events, &event_audit,
		   &(struct audit_event){
			   .uid = told->peer->uid,
			   .pid = peer_pid(told->peer),
			   .command = told->command,
			   .unit = told->unit,
			   .method = told->method,
			   .model = told->model,
			   .tag = told->tag,
			   .what = told->what,
			   .code = told->code,
			   .message = told->message,
		   },
		   &(struct event_about){.for_observers = true});
}

static void log_line_of(const struct told *told)
{
	char uid[16], pid[16], who[WHO_BYTES] = "";
	const struct journal_field fields[] = {
		{"GPUWM_UID", uid},
		{"GPUWM_PID", pid},
		{"GPUWM_COMMAND", told->command},
		{"GPUWM_UNIT", told->unit},
		{"GPUWM_METHOD", told->method},
		{"GPUWM_MODEL", told->model},
		{"GPUWM_TAG", told->tag},
		{"GPUWM_WHAT", told->what},
		{"GPUWM_RESULT", told->result},
		{"GPUWM_CODE", told->code},
		{"GPUWM_MESSAGE", told->message},
	};

	snprintf(uid, sizeof(uid), "%u", (unsigned)told->peer->uid);
	snprintf(pid, sizeof(pid), "%llu", (unsigned long long)peer_pid(told->peer));
	/* Of a process that has left only the user is known. One that calls itself nothing is told all the same. */
	if (peer_pid(told->peer) > 0)
		snprintf(who, sizeof(who), " (%s%spid %s%s%s)", told->command, told->command[0] ? ", " : "",
			 pid, told->unit ? ", " : "", told->unit ? told->unit : "");
	log_write_fields(LOG_LEVEL_INFO, fields, sizeof(fields) / sizeof(*fields),
			 "audit: uid %s%s: %s%s%s: %s%s%s%s%s", uid, who, told->method,
			 told->what[0] ? " " : "", told->what, told->result, told->code ? ", " : "",
			 told->code ? told->code : "", told->message ? ": " : "",
			 told->message ? told->message : "");
}

/* session NULL: the peer has left. */
static void audit_put(struct clients *clients, const struct peer *peer, struct session *session,
		      const struct audit *audit, const struct error *error)
{
	struct told told = {
		.peer = peer,
		.command = peer->command,
		.method = audit->method,
		.model = or_null(audit->model),
		.tag = or_null(audit->tag),
		.what = audit->what,
		.result = !error             ? "done"
			  : audit->has_begun ? "failed"
					     : "refused",
		.code = error ? error_name(error->code) : NULL,
		.message = error ? error->message : or_null(audit->outcome),
	};

	if (session) {
		audit_read_unit(session);
		told.unit = session->client->unit ? or_null(session->client->unit) : NULL;
	}
	log_line_of(&told);
	tell_event(clients->ledger->events, &told);
}

static bool is_due(struct clients *clients, uid_t uid, const struct error *error)
{
	return complaint_due(clients->net->complaints, uid, error ? COMPLAINT_REFUSED : COMPLAINT_CHANGED);
}

void audit_tell(struct session *session, const struct audit *audit, const struct error *error)
{
	struct clients *clients = session->client->clients;

	if ((session->kind == SESSION_ADMIN && !error) || is_due(clients, session->peer.uid, error))
		audit_put(clients, &session->peer, session, audit, error);
}

void audit_tell_of_user(struct clients *clients, uid_t uid, const struct audit *audit,
			const struct error *error)
{
	const struct peer gone = {.uid = uid, .pidfd = -1};

	if (is_due(clients, uid, error))
		audit_put(clients, &gone, NULL, audit, error);
}
