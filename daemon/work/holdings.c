#include "holdings.h"
#include "claims.h"
#include "../base/complaint.h"
#include "loader.h"
#include "revoked.h"
#include "../server.h"
#include "../net/session.h"
#include "versions.h"
#include "../../proto/methods.h"

#include <errno.h>

static void tell_lost(struct session *s, uint64_t leases)
{
	struct server *server = s->server;
	struct message_writer w;

	complain(server->complaints, s->peer.uid, COMPLAINT_LEASES,
		 "session %llu (%s, pid %d, uid %u) ended with %llu lease%s", (unsigned long long)s->id,
		 s->peer.command, (int)s->peer.pid, (unsigned)s->peer.uid, (unsigned long long)leases,
		 leases == 1 ? "" : "s");
	event_begin(server->ledger.events, &w, EVENT_PEER_LOST);
	message_put_u64(&w, "session", s->id);
	message_put_u64(&w, "pid", s->peer.pid > 0 ? (uint64_t)s->peer.pid : 0);
	message_put_u64(&w, "uid", s->peer.uid);
	message_put_u64(&w, "leases", leases);
	event_emit(server->ledger.events, &w);
}

static void drop_leases(struct session *s)
{
	uint64_t count = 0;

	for (const struct lease *lease = s->leases; lease; lease = lease->next_of_holder)
		count++;
	if (count == 0)
		return;
	if (!s->server->stopping)
		tell_lost(s, count);
	while (s->leases)
		versions_free_unused(s->server, lease_release(s->server->ledger.registry, s->leases));
}

void holdings_drop(struct session *s)
{
	struct error reason;

	while (s->waiters)
		waiter_free(s->waiters);
	drop_leases(s);
	revoked_leave(s);
	error_set(&reason, -ECANCELED, "commit before the connection ends",
		  "its publisher (%s, pid %d, uid %u) went before its commit", s->peer.command,
		  (int)s->peer.pid, (unsigned)s->peer.uid);
	versions_fail_of(s->server, s, &reason, s);
	claims_drop(s);
	if (s->loader)
		loader_lost(s->loader);
}

void holdings_refuse(struct session *s, uint64_t lease_id, uint64_t request_id)
{
	struct request request = {.server = s->server, .session = s, .id = request_id};
	struct lease *lease = lease_find(s->server->ledger.registry, lease_id, s);
	struct error error;

	if (lease)
		versions_free_unused(s->server, lease_release(s->server->ledger.registry, lease));
	error_set(
		&error, -ETOOMANYREFS, "read replies, then try again; close connections that nobody reads",
		"no more descriptors can be sent to uid %u: its connections, or those of all users, leave too many "
		"unread",
		(unsigned)s->peer.uid);
	request_refuse(&request, &error);
}
