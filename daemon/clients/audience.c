#include "clients.h"

#include <errno.h>
#include <stdlib.h>
#include <utlist.h>

/* Events that one session is sent before others of its user are: some 2 us each. */
#define EVENTS_AT_ONCE 8

struct audience {
	struct fair_task task;
	struct fair_share *share;
	struct clients *clients;
	struct session *first; /* a list */
	struct session *turn; /* the next one of the pass that goes on; NULL: none does */
	uint64_t told; /* the last event when the pass began */
	bool again; /* somebody can take more than one step brought */
	struct audience *prev, *next;
};

/* Sends some of the events that are due. True: there are more, and the socket takes them. */
static bool tell_some(struct session *session)
{
	struct client *client = session->client;
	const void *data;
	size_t bytes;
	uint64_t seq;

	for (int i = 0; i < EVENTS_AT_ONCE; i++) {
		if (session->out || session->ended)
			return false;
		client->event_seq = access_skip_events(session, client->event_seq);
		if (event_after(client->clients->ledger->events, client->event_seq, &data, &bytes, &seq) == 0 ||
		    !session_offer(session, data, bytes))
			return false;
		client->event_seq = seq;
	}
	return true;
}

/* One step: a few events for one session. */
static bool tell_one(struct fair_task *task)
{
	struct audience *a = (struct audience *)task; /* its first member */
	uint64_t last = event_last(a->clients->ledger->events);
	struct session *session;

	if (!a->turn) {
		a->turn = a->first;
		a->told = last;
		a->again = false;
	}
	session = a->turn;
	a->turn = session->client->next_listener;
	a->again |= tell_some(session);
	return a->turn || a->again || a->told != last;
}

static struct audience *audience_of(struct clients *clients, struct fair_share *share)
{
	struct audience *a = clients->audiences;

	while (a && a->share != share)
		a = a->next;
	if (a)
		return a;
	a = calloc(1, sizeof(*a));
	if (!a)
		return NULL;
	a->task.call = tell_one;
	a->share = share;
	a->clients = clients;
	DL_PREPEND(clients->audiences, a);
	return a;
}

int audience_join(struct session *session)
{
	struct audience *a = session->client->audience;

	if (!a) {
		a = audience_of(session->client->clients, session->share);
		if (!a)
			return -ENOMEM;
		session->client->audience = a;
		DL_PREPEND2(a->first, session, client->prev_listener, client->next_listener);
	}
	audience_resume(session);
	return 0;
}

void audience_leave(struct session *session)
{
	struct audience *a = session->client->audience;

	if (!a)
		return;
	if (a->turn == session)
		a->turn = session->client->next_listener;
	DL_DELETE2(a->first, session, client->prev_listener, client->next_listener);
	session->client->audience = NULL;
	if (a->first)
		return;
	fair_undue(&a->task);
	DL_DELETE(a->clients->audiences, a);
	free(a);
}

void audience_resume(const struct session *session)
{
	struct audience *a = session->client->audience;

	if (!a)
		return;
	a->again = true;
	fair_due(a->share, &a->task);
}

void audiences_tell(struct clients *clients)
{
	if (clients->events_told == event_last(clients->ledger->events))
		return;
	clients->events_told = event_last(clients->ledger->events);
	for (struct audience *a = clients->audiences; a; a = a->next)
		fair_due(a->share, &a->task);
}
