/* The connected processes, and what gpuwmd knows of them: roles and rights, requests and their answers, waiting requests, and
 * subscriptions. */
#ifndef GPUWM_DAEMON_CLIENTS_H
#define GPUWM_DAEMON_CLIENTS_H

#include "access.h"
#include "waiter.h"
#include "../ledger/ledger.h"
#include "../net/net.h"
#include "../net/session.h"

struct audience;
struct loader;
struct revoked_holder;

/* What all clients share. */
struct clients {
	struct net *net;
	struct ledger *ledger;
	const struct config *config;
	gid_t publish_group, observe_group;
	bool has_publish_group, has_observe_group;
	uint64_t rules_generation; /* counts how often rules came into force, from 1 */
	uint64_t roles_generation; /* counts how often gpuwmd looked up the groups that give roles, from 1 */
	struct operators_socket operators;

	struct waiter *waiters[WAIT_KINDS]; /* oldest first */
	struct waiter_name *waiter_names; /* by what they wait for */
	uint64_t waiting;
	struct audience *audiences; /* a list */
	uint64_t events_told; /* the number of the last event for which subscribers were woken */
	uint64_t requests, refused;
};

/* What gpuwmd knows of a session's peer besides its connection. */
struct client {
	struct clients *clients;
	unsigned roles; /* access_roles gives them */
	uint64_t roles_generation; /* clients.roles_generation when they were looked up; 0: not yet */
	struct access access;
	char name[NAME_BYTES_MAX + 1]; /* from its hello */
	char *unit; /* of its peer (net/peer.h); owned; NULL: not looked up yet */
	bool greeted; /* it has said hello */
	uint64_t requests;
	uint64_t heard_ms; /* steady: its last request */

	struct audience *audience; /* NULL: it did not subscribe */
	struct session *prev_listener, *next_listener;
	uint64_t event_seq; /* the number of the last event that was sent */

	struct waiter *waiters;
	unsigned waiter_count;
	struct lease *leases;
	unsigned addresses; /* of these leases: how many have one */
	struct claim *claims;
	struct revoked_holder *revoked; /* leases that were revoked and not released yet; NULL: none */
	struct loader *loader; /* of a loader's session */
};

/* Puts the rules of the configuration into force, and looks up the groups that give roles. Call it at start, and when the
 * configuration has changed. */
void clients_configure(struct clients *clients);

/* Sets session->client, which client_free frees. Fails with -ENOMEM. */
int client_new(struct clients *clients, struct session *session);
/* The session has ended: frees its client, which holds nothing any more. */
void client_free(struct session *session);

/* ---- subscribers: audience.c ----
 * gpuwmd sends events in the time of the users who subscribed. All subscribers of a uid share one task, so an event
 * costs the loop at most one step for each uid. */

/* Sends the session all events after its event_seq from now on. A second call is fine. Fails with -ENOMEM. */
int audience_join(struct session *session);
/* Ends that. Call it before the session leaves its share. A session that never joined is fine. */
void audience_leave(struct session *session);
/* The kernel did not take an event of the session, and would take it now. */
void audience_resume(const struct session *session);
/* Wakes subscribers if there are new events. */
void audiences_tell(struct clients *clients);

#endif
