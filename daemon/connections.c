#include "server.h"

#include "clients/clients.h"
#include "methods/methods.h"
#include "work/versions/leases.h"

static int begun(struct net *net, struct session *session)
{
	struct server *server = net->data;

	return client_new(&server->clients, session);
}

static void identified(struct session *session)
{
	access_roles(session); /* now, since it may cost more than the first request */
}

static void received(struct session *session, struct packet *packet)
{
	dispatch_packet(session->net->data, session, packet);
}

static void flushed(struct session *session)
{
	audience_resume(session);
}

static void unsendable(struct session *session, uint64_t lease, uint64_t request)
{
	struct server *server = session->net->data;

	holdings_refuse(&server->work, session, lease, request);
}

static void ended(struct session *session)
{
	struct server *server = session->net->data;

	holdings_drop(&server->work, session);
	client_free(session);
}

const struct net_above connections = {begun, identified, received, flushed, unsendable, ended};
