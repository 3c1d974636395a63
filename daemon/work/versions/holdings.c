#include "leases.h"
#include "claims.h"
#include "../../base/complaint.h"
#include "../../base/metrics.h"
#include "../loaders/loader.h"
#include "../regions/regions.h"
#include "../work.h"
#include "../../net/session.h"
#include "versions.h"
#include "../../../proto/wire/messages.h"

#include <errno.h>

static void tell_lost(struct work *work, struct session *s, uint64_t leases)
{
	complain(work->net->complaints, s->peer.uid, COMPLAINT_LEASES,
		 "session %llu (%s, pid %d, uid %u) ended with %llu lease%s", (unsigned long long)s->id,
		 s->peer.command, (int)s->peer.pid, (unsigned)s->peer.uid, (unsigned long long)leases,
		 leases == 1 ? "" : "s");
	event_emit(work->ledger->events, &event_peer_lost,
		   &(struct peer_lost_event){
			   .session = s->id,
			   .pid = peer_pid(&s->peer),
			   .uid = s->peer.uid,
			   .leases = leases,
		   },
		   NULL);
}

static void drop_leases(struct work *work, struct session *s)
{
	uint64_t count = 0;

	for (const struct lease *lease = s->client->leases; lease; lease = lease->next_of_holder)
		count++;
	if (count == 0)
		return;
	metrics_count(work->net->metrics, METRIC_LEASES_LOST, count);
	if (!work->net->stopping)
		tell_lost(work, s, count);
	while (s->client->leases)
		versions_free_unused(work, leases_end(work, s->client->leases));
}

void holdings_drop(struct work *work, struct session *s)
{
	struct error reason;

	if (s->client->waiters) {
		while (s->client->waiters)
			waiter_free(s->client->waiters);
		regions_abandon(work);
	}
	drop_leases(work, s);
	revoked_leave(s);
	error_set(&reason, -ECANCELED, "commit before the connection ends",
		  "its publisher (%s, pid %d, uid %u) left before its commit", s->peer.command,
		  (int)s->peer.pid, (unsigned)s->peer.uid);
	versions_fail_of(work, s, &reason, s);
	claims_drop(work, s);
	if (s->client->loader)
		loader_lost(s->client->loader);
}

void holdings_refuse(struct work *work, struct session *s, uint64_t lease_id, uint64_t request_id)
{
	struct request request = {.session = s, .id = request_id, .form = &form_get_handles};
	struct lease *lease = lease_find(work->ledger->registry, lease_id, s);
	struct error error;

	if (lease && lease->parked_as) /* an answer to unpark, whose holder maps nothing still */
		leases_unpark_undo(work, lease);
	else if (lease)
		versions_free_unused(work, leases_end(work, lease));
	error_set(
		&error, -ETOOMANYREFS, "read replies, then try again; close connections that nobody reads",
		"no more descriptors can be sent to uid %u: its connections, or those of all users, leave too many "
		"unread",
		(unsigned)s->peer.uid);
	request_refuse(&request, &error);
}
