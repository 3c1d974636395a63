#include "methods.h"
#include "../../base/clock.h"
#include "../base/complaint.h"
#include "../base/metrics.h"
#include "../clients/audit.h"
#include "../restart/keeping.h"

#include <assert.h>
#include <errno.h>
#include <stdalign.h>
#include <stddef.h>
#include <string.h>

enum {
	BEFORE_HELLO = 1,
	NOTIFICATION = 2,
	WHEN_LOCKED = 4, /* while gpuwmd can use neither its configuration nor the state */
	LOOKS = 8, /* changes nothing */
	LATE = 16, /* a request that waits may still be refused its change */
	TOLD_ELSEWHERE =
		32, /* the audit has it when the change is complete, and from here only if it is refused */
	WHEN_UNREADABLE = 64, /* while gpuwmd can use its configuration, but not the state */
};

#define EVERYBODY (ROLE_WORKER | ROLE_LOADER)

struct method {
	const struct message_form *form;
	unsigned roles; /* one of them is enough */
	unsigned flags;
	method_fn *call;
	words_fn *words; /* of a method that changes what others see: words.c; NULL: of another one */
};

/* A row is one of four. One that changes what others see does not compile without words_NAME, for the audit. */
#define ROW(name, roles, flags, words)                                                                         \
	{                                                                                                      \
		&form_##name, roles, flags, method_##name, words                                               \
	}
#define CHANGES(name, roles, flags) ROW(name, roles, flags, words_##name)
/* It changes only what the caller has, or asks for: leases, publishes, claims, uses of regions. */
#define UNTOLD(name, roles, flags) ROW(name, roles, flags, NULL)
/* It changes nothing. */
#define LOOK_AT(name, roles, flags) ROW(name, roles, (flags) | LOOKS, NULL)
/* gpuwmd's own processes say how far they are with what they were told. */
#define OF_LOADERS(name, flags) ROW(name, ROLE_LOADER, flags, NULL)

/* Who may call what. Descriptors come only on connections of loaders, by how they are received. */
static const struct method methods[] = {
	UNTOLD(get_handles, ROLE_WORKER, 0),
	UNTOLD(release, ROLE_WORKER, 0),
	UNTOLD(announce, ROLE_WORKER, 0),
	UNTOLD(park, ROLE_WORKER, 0),
	UNTOLD(unpark, ROLE_WORKER, 0),
	UNTOLD(resume, ROLE_WORKER, 0),
	LOOK_AT(ping, EVERYBODY, BEFORE_HELLO | WHEN_LOCKED),
	LOOK_AT(hello, EVERYBODY & ~ROLE_LOADER, BEFORE_HELLO | WHEN_LOCKED),
	LOOK_AT(list, ROLE_WORKER, 0),
	LOOK_AT(status, ROLE_WORKER, WHEN_LOCKED),
	UNTOLD(subscribe, ROLE_WORKER, 0),
	/* Whether this session may is a question of the model: clients/access.h. */
	CHANGES(publish_begin, ROLE_WORKER | ROLE_LOADER, LATE | TOLD_ELSEWHERE),
	CHANGES(publish_commit, ROLE_WORKER, TOLD_ELSEWHERE),
	UNTOLD(publish_abort, ROLE_WORKER | ROLE_LOADER, 0),
	UNTOLD(claim, ROLE_WORKER, 0),
	UNTOLD(claim_give_up, ROLE_WORKER, 0),
	CHANGES(hot_swap, ROLE_WORKER, 0),
	CHANGES(pin_version, ROLE_WORKER, 0),
	CHANGES(unpin_version, ROLE_WORKER, 0),
	CHANGES(demote, ROLE_WORKER, 0),
	CHANGES(promote, ROLE_WORKER, 0),
	CHANGES(describe, ROLE_WORKER, 0),
	CHANGES(retire, ROLE_WORKER, 0),
	CHANGES(remove, ROLE_WORKER, 0),
	CHANGES(verify, ROLE_WORKER, 0),
	CHANGES(drain, ROLE_OPERATOR, WHEN_UNREADABLE),
	CHANGES(reload, ROLE_OPERATOR, WHEN_LOCKED),
	CHANGES(kick, ROLE_OPERATOR, 0),
	/* Of others than operators, a load of files that they pass: methods_jobs.c. */
	CHANGES(load, ROLE_WORKER, 0),
	CHANGES(cancel, ROLE_WORKER, LATE),
	/* Whether this session may is a question of the region: clients/access.h. */
	CHANGES(region_create, ROLE_WORKER, LATE | TOLD_ELSEWHERE),
	UNTOLD(region_open, ROLE_WORKER, 0),
	UNTOLD(region_close, ROLE_WORKER, 0),
	CHANGES(region_remove, ROLE_WORKER, 0),
	UNTOLD(scratch_acquire, ROLE_WORKER, 0),
	UNTOLD(scratch_release, ROLE_WORKER, 0),
	LOOK_AT(region_list, ROLE_WORKER, 0),
	LOOK_AT(jobs, ROLE_WORKER, 0),
	LOOK_AT(clients, ROLE_OPERATOR | ROLE_OBSERVER, 0),
	LOOK_AT(own_clients, ROLE_WORKER, 0),
	LOOK_AT(metrics, ROLE_OPERATOR | ROLE_OBSERVER, WHEN_LOCKED),
	OF_LOADERS(loader_hello, BEFORE_HELLO),
	OF_LOADERS(loader_checked, 0),
	OF_LOADERS(loader_moved, 0),
	OF_LOADERS(loader_region, 0),
	OF_LOADERS(loader_done, 0),
	OF_LOADERS(loader_holds, 0),
	LOOK_AT(loader_resident, ROLE_LOADER, 0),
	OF_LOADERS(loader_progress, NOTIFICATION),
	OF_LOADERS(loader_devices, NOTIFICATION),
	OF_LOADERS(loader_roots, NOTIFICATION),
	OF_LOADERS(loader_warm, NOTIFICATION),
};

static_assert(sizeof(methods) / sizeof(*methods) <= METRICS_METHODS_MAX, "each method has its times");

static const struct method *method_find(const char *name)
{
	for (size_t i = 0; i < sizeof(methods) / sizeof(*methods); i++) {
		if (strcmp(methods[i].form->name, name) == 0)
			return &methods[i];
	}
	return NULL;
}

/* ---- refusals ---- */

/* The packet is not to be trusted, nor what follows it. */
static void refuse_and_end(struct session *session, const struct message *message, const struct error *error)
{
	complain(session->net->complaints, session->peer.uid, COMPLAINT_PACKET,
		 "session %llu (%s, pid %d, uid %u) is ended: %s", (unsigned long long)session->id,
		 session->kind == SESSION_LOADER ? "loader" : session->peer.command, (int)session->peer.pid,
		 (unsigned)session->peer.uid, error->message);
	session->client->clients->refused++;
	session->times->refused++;
	metrics_refused(session->net->metrics, refused_packet, error->code);
	session_refuse(session, message->has_id ? &message->id : NULL, error);
	session_finish(session);
}

static void refuse_packet(struct session *session, const struct packet *packet, const struct message *message,
			  const char *why)
{
	struct error error;

	if (packet->cut)
		error_set(&error, -EPROTO, "a packet holds at most 65,536 bytes",
			  "a packet of more than %d bytes", PACKET_BYTES_MAX);
	else if (packet->fds_cut && session->kind == SESSION_LOADER)
		error_set(&error, -EPROTO, "a packet holds at most 253",
			  "too many descriptors, or no room for them");
	else if (packet->fds_cut)
		error_set(&error, -EPROTO,
			  "descriptors of a new version go to the checker whose socket publish_begin gave",
			  "descriptors came where none are taken");
	else
		error_set(&error, -EPROTO, NULL, "not a message: %s", why);
	refuse_and_end(session, message, &error);
}

/* ---- what the table says ---- */

static int check_role(const struct method *method, struct session *session, struct error *error)
{
	const enum role roles[] = {ROLE_WORKER, ROLE_OPERATOR, ROLE_LOADER};
	char remedy[REMEDY_BYTES] = "";
	size_t i = 0;

	if (method->roles & access_roles(session))
		return 0;
	while (!(method->roles & roles[i]))
		i++;
	if (method->roles & ROLE_OBSERVER)
		remedy_observer(session->client->clients, remedy);
	else if (roles[i] == ROLE_OPERATOR)
		remedy_operator(session->client->clients, remedy);
	return error_set(error, -EACCES, remedy, "%s needs the role %s%s", method->form->name,
			 role_name(roles[i]), method->roles & ROLE_OBSERVER ? " or observer" : "");
}

static int check_method(const struct method *method, const struct message *message,
			const struct request *request, struct error *error)
{
	const unsigned when_locked = WHEN_LOCKED | (request->server->unconfigured ? 0 : WHEN_UNREADABLE);
	struct session *session = request->session;
	const struct error *locked = keeping_locked(request->server->keeping);

	if (!method)
		return error_set(error, -ENOSYS, "upgrade gpuwmd: an upgrade keeps the weights",
				 "gpuwmd " GPUWM_VERSION " has no method \"%s\"", message->method);
	if (!session->client->greeted && !(method->flags & BEFORE_HELLO))
		return error_set(error, -EPROTO, "hello settles the protocol version", "%s came before hello",
				 method->form->name);
	if (locked && !(method->flags & when_locked)) {
		*error = *locked;
		return error->code;
	}
	return check_role(method, session, error);
}

/* Reads the parameters as the method's form says. The handler sees only valid ones. refused: the request is only described, for the
 * audit. */
static int method_run(const struct method *method, struct request *request, bool refused, struct error *error)
{
	alignas(max_align_t) char params[RECORD_BYTES_MAX];
	int r = record_read(method->form->params, request->message, params, error);

	if (r < 0)
		return r;
	if (request->audit && !method->words(request, params, request->audit))
		request->audit = NULL;
	if (request->audit)
		audit_read_unit(request->session);
	return refused ? 0 : method->call(request, params, error);
}

static void take_request(struct server *server, struct session *session, struct packet *packet,
			 struct message *message)
{
	const struct method *method = method_find(message->method);
	struct request request = {.server = server,
				  .session = session,
				  .id = message->id,
				  .received_ns = session->net->received_ns,
				  .form = method ? method->form : NULL,
				  .packet = packet,
				  .message = message};
	struct error error, unread;
	struct audit audit;
	int r;

	session->client->requests++;
	session->client->heard_ms = session->net->received_ns / 1000000;
	session->client->clients->requests++;
	session->times->requests++;
	if (method && method->words && session->kind != SESSION_LOADER) {
		audit = (struct audit){.method = method->form->name, .is_late = method->flags & LATE};
		request.audit = &audit;
	}
	r = check_method(method, message, &request, &error);
	if (r == 0 && method->flags & NOTIFICATION)
		r = error_set(&error, -EINVAL, NULL, "%s is a notification", method->form->name);
	if (r == 0) {
		request.looks = method->flags & LOOKS;
		r = method_run(method, &request, false, &error);
	} else if (request.audit) {
		method_run(method, &request, true, &unread);
	}
	if (r < 0)
		request_refuse(&request, &error);
	else if (request.audit && !(method->flags & TOLD_ELSEWHERE))
		audit_tell(session, request.audit, NULL);
	if (method)
		metrics_request(server->net.metrics, (size_t)(method - methods), method->form->name,
				clock_steady_ns() - request.received_ns);
}

/* Only loaders send any; an error has nobody to go to. */
static bool take_notification(struct server *server, struct session *session, struct message *message)
{
	const struct method *method = method_find(message->method);
	struct request request = {
		.server = server, .session = session, .form = method ? method->form : NULL, .message = message};
	struct error error;

	if (!method || !(method->flags & NOTIFICATION) || check_method(method, message, &request, &error) < 0)
		return false;
	if (method_run(method, &request, false, &error) < 0)
		log_warning("a loader's %s: %s", method->form->name, error.message);
	return true;
}

void dispatch_packet(struct server *server, struct session *session, struct packet *packet)
{
	struct message message;
	const char *why = "";
	int r = message_read_bounded(packet->data, packet->cut ? PACKET_BYTES_MAX : packet->bytes, &message,
				     &why);
	struct error error;

	if (r == -ENOMEM) {
		/* There was no memory to read it. A request is refused; what comes without an id has nobody to tell. */
		error_set(&error, -ENOMEM, NULL, "gpuwmd is out of memory");
		if (message.has_id)
			request_refuse(&(struct request){.session = session, .id = message.id}, &error);
		else
			refuse_and_end(session, &message, &error);
	} else if (r < 0 || packet->cut || packet->fds_cut) {
		refuse_packet(session, packet, &message, why);
	} else if (message.type == MESSAGE_REQUEST) {
		take_request(server, session, packet, &message);
	} else if (message.type != MESSAGE_NOTIFICATION || !take_notification(server, session, &message)) {
		error_set(&error, -EPROTO, NULL, "gpuwmd takes requests only, not this message");
		refuse_and_end(session, &message, &error);
	}
	message_clear(&message);
}
