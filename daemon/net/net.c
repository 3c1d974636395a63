#include "net.h"

#include "fair.h"
#include "session.h"
#include "unread.h"
#include "../base/complaint.h"
#include "../base/metrics.h"
#include "../base/pace.h"

#include <errno.h>

/* What a user's session does may end it and others. */
static void after_each(void *data)
{
	net_settle(data);
}

int net_init(struct net *net)
{
	net->packet.data = net->packet_data;
	net->answer = (struct message_memory){net->answer_data, sizeof(net->answer_data), false};
	net->metrics = metrics_new();
	net->fair = net->metrics ? fair_new(net->loop, net->metrics, after_each, net) : NULL;
	net->crowded = crowded_new(net->loop);
	net->complaints = complaints_new(net->loop);
	net->discard = discard_new(net->loop);
	net->unread = unread_new();
	net->connects = pace_new(false);
	return net->fair && net->crowded && net->complaints && net->discard && net->unread && net->connects
		       ? 0
		       : -ENOMEM;
}

void net_close(struct net *net)
{
	net->crowded = crowded_free(net->crowded);
	net->discard = discard_free(net->discard);
	net->unread = unread_free(net->unread);
	net->fair = fair_free(net->fair);
	complaints_end(net->complaints);
}

void net_clear(struct net *net)
{
	pace_free(net->connects);
	complaints_free(net->complaints);
	metrics_free(net->metrics);
}

void net_settle(struct net *net)
{
	while (net->ended_sessions) {
		struct session *session = net->ended_sessions;

		net->ended_sessions = session->next_ended;
		session_goodbye(session);
	}
}

void net_finish(struct net *net)
{
	for (struct session *s = net->sessions; s; s = s->next) {
		if (s->kind != SESSION_LOADER && !s->finishing)
			session_finish(s);
	}
}

void net_end(struct net *net)
{
	for (struct session *s = net->sessions; s; s = s->next)
		session_end(s);
	net_settle(net);
}

int net_refuse_stopping(struct error *error)
{
	return error_set(error, -ECONNRESET, "connect again, and ask the next one", "gpuwmd is stopping");
}
