#include "audience.h"
#include "../server.h"
#include "../net/session.h"

#include <errno.h>
#include <stdlib.h>

struct audience {
	struct fair_task task;
	struct fair_share *share;
	struct server *server;
	struct session *first; /* a list */
	struct session *turn; /* the next one of the pass that goes on; NULL: none does */
	uint64_t told; /* the last event when the pass began */
	bool again; /* somebody can take more than one step brought */
	struct audience *next, **link;
};

/* One step: a few events for one session. */
static bool tell_one(struct fair_task *task)
{
	struct audience *a = (struct audience *)task; /* its first member */
	uint64_t last = event_last(a->server->ledger.events);
	struct session *session;

	if (!a->turn) {
		a->turn = a->first;
		a->told = last;
		a->again = false;
	}
	session = a->turn;
	a->turn = session->next_listener;
	a->again |= session_tell_events(session);
	return a->turn || a->again || a->told != last;
}

static struct audience *audience_of(struct server *server, struct fair_share *share)
{
	struct audience *a = server->audiences;

	while (a && a->share != share)
		a = a->next;
	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->task.call = tell_one;
	a->share = share;
	a->server = server;
	a->next = server->audiences;
	a->link = &server->audiences;
	if (a->next)
		a->next->link = &a->next;
	server->audiences = a;
	return a;
}

int audience_join(struct session *session)
{
	struct audience *a = session->audience;

	if (!a) {
		a = audience_of(session->server, session->share);
		if (!a)
			return -ENOMEM;
		session->audience = a;
		session->next_listener = a->first;
		session->link_of_listener = &a->first;
		if (a->first)
			a->first->link_of_listener = &session->next_listener;
		a->first = session;
	}
	audience_resume(session);
	return 0;
}

void audience_leave(struct session *session)
{
	struct audience *a = session->audience;

	if (!a)
		return;
	if (a->turn == session)
		a->turn = session->next_listener;
	*session->link_of_listener = session->next_listener;
	if (session->next_listener)
		session->next_listener->link_of_listener = session->link_of_listener;
	session->audience = NULL;
	if (a->first)
		return;
	fair_undue(&a->task);
	*a->link = a->next;
	if (a->next)
		a->next->link = a->link;
	free(a);
}

void audience_resume(const struct session *session)
{
	struct audience *a = session->audience;

	if (!a)
		return;
	a->again = true;
	fair_due(a->share, &a->task);
}

void audiences_tell(struct server *server)
{
	for (struct audience *a = server->audiences; a; a = a->next)
		fair_due(a->share, &a->task);
}
