#include "methods.h"
#include "../clients/audit.h"
#include "../restart/keeping.h"
#include "../work/versions/leases.h"
#include "../work/versions/versions.h"

#include <errno.h>
#include <stdio.h>

#define REASON "an operator revoked it"

/* Which leases: one of the three. */
enum by { BY_LEASE, BY_PID, BY_UID };
static const char *const keys[] = {[BY_LEASE] = "lease", [BY_PID] = "pid", [BY_UID] = "uid"};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

struct kick {
	enum by by;
	uint64_t number;
};

static int kick_of(const struct kick_params *params, struct kick *ret, struct error *error)
{
	const uint64_t *const numbers[KEYS] = {
		[BY_LEASE] = params->lease, [BY_PID] = params->pid, [BY_UID] = params->uid};
	unsigned given = 0;

	for (size_t i = 0; i < KEYS; i++) {
		if (!numbers[i])
			continue;
		*ret = (struct kick){(enum by)i, *numbers[i]};
		given++;
	}
	if (given != 1)
		return error_set(error, -EINVAL, "kick takes one of lease, pid and uid", "%u of them came",
				 given);
	if (ret->by == BY_PID && ret->number == 0)
		return error_set(error, -EINVAL, "kick their leases, or their uid",
				 "pid 0 stands for all processes of other PID namespaces");
	return 0;
}

static bool kick_concerns(const struct kick *kick, const struct session *session)
{
	if (session->kind == SESSION_LOADER || !session->client->leases)
		return false;
	if (kick->by == BY_PID)
		return session->peer.pid > 0 && (uint64_t)session->peer.pid == kick->number;
	return kick->by == BY_UID && session->peer.uid == kick->number;
}

static uint64_t kick_count(const struct server *server, const struct kick *kick)
{
	uint64_t found = 0;

	if (kick->by == BY_LEASE)
		return lease_by_id(server->ledger.registry, kick->number) != NULL;
	for (const struct session *s = server->net.sessions; s; s = s->next) {
		const struct lease *lease = kick_concerns(kick, s) ? s->client->leases : NULL;

		for (; lease; lease = lease->next_of_holder)
			found++;
	}
	return found;
}

/* There is one. */
static const struct session *any_holder(const struct server *server, const struct kick *kick)
{
	const struct session *session = server->net.sessions;

	if (kick->by == BY_LEASE)
		return lease_by_id(server->ledger.registry, kick->number)->holder;
	while (!kick_concerns(kick, session))
		session = session->next;
	return session;
}

static int found_nothing(const struct server *server, const struct kick *kick, struct error *error)
{
	unsigned long long number = kick->number;

	if (kick->by == BY_LEASE && revoked_find(&server->work, number))
		return error_set(error, -ENOENT, "its process may still map the memory: end it",
				 "lease %llu is revoked already", number);
	if (kick->by == BY_LEASE)
		return error_set(error, -ENOENT, "gpuwmctl ps lists them", "there is no lease %llu", number);
	return error_set(error, -ENOENT, "gpuwmctl ps lists who has leases", "%s %llu has no lease",
			 keys[kick->by], number);
}

static int kick_lease(struct server *server, const struct kick *kick, struct lease *lease, struct error *error)
{
	struct version *version = lease->version;
	const struct session *holder = lease->holder;
	const uid_t uid = holder->peer.uid;
	int r = 0;

	/* What resume refuses from now on. Nobody gets a lease again of a version that was retired by force, so its
	 * leases need not be remembered. */
	if (!version->forced && !version_lease_revoked(version, uid, lease->id))
		r = kick->by == BY_UID
			    ? version_revoke_user(version, uid, lease_last(server->ledger.registry), error)
			    : version_revoke_id(version, uid, lease->id, error);
	if (r == 0)
		r = revoked_add(&server->work, lease, error);
	if (r == 0)
		versions_mark_unused(&server->work, version);
	return r;
}

static int kick_all(struct server *server, const struct kick *kick, struct error *error)
{
	int r = 0;

	if (kick->by == BY_LEASE)
		return kick_lease(server, kick, lease_by_id(server->ledger.registry, kick->number), error);
	for (struct session *s = server->net.sessions; s && r == 0; s = s->next) {
		bool concerned = kick_concerns(kick, s);

		while (concerned && s->client->leases && r == 0)
			r = kick_lease(server, kick, s->client->leases, error);
	}
	return r;
}

static int kick_check_room_of(const struct server *server, uid_t uid, uint64_t leases, struct error *error)
{
	const uint64_t known = registry_revoked_ids(server->ledger.registry, uid);
	char remedy[160];

	if (known + leases <= REVOKED_IDS_PER_UID_MAX)
		return 0;
	snprintf(remedy, sizeof(remedy),
		 "kick all leases of the user: gpuwmctl kick --uid %u, of which gpuwmd remembers one entry for "
		 "each version",
		 (unsigned)uid);
	return error_set(
		error, -EDQUOT, remedy,
		"%llu leases of uid %u are to be kicked and gpuwmd remembers %llu that were; it remembers "
		"at most %d of a user",
		(unsigned long long)leases, (unsigned)uid, (unsigned long long)known, REVOKED_IDS_PER_UID_MAX);
}

/* Of a process that has changed its user, all leases are counted for each of its users. */
static int kick_check_room(const struct server *server, const struct kick *kick, uint64_t leases,
			   struct error *error)
{
	uid_t uid = any_holder(server, kick)->peer.uid;
	int r = kick->by == BY_UID ? 0 : kick_check_room_of(server, uid, leases, error);

	for (const struct session *s = server->net.sessions; s && r == 0 && kick->by == BY_PID; s = s->next) {
		if (!kick_concerns(kick, s) || s->peer.uid == uid)
			continue;
		uid = s->peer.uid;
		r = kick_check_room_of(server, uid, leases, error);
	}
	return r;
}

/* Saved before anybody is told: a client that comes back after a kill is refused too. */
int method_kick(struct request *request, const void *params, struct error *error)
{
	struct server *server = request->server;
	struct message_writer w;
	struct kick kick = {0};
	const struct session *holder;
	uint64_t leases, done;
	struct error why;
	int r = kick_of(params, &kick, error);

	if (r < 0)
		return r;
	leases = kick_count(server, &kick);
	r = leases == 0 ? found_nothing(server, &kick, error) : kick_check_room(server, &kick, leases, error);
	if (r < 0)
		return r;
	holder = any_holder(server, &kick);
	r = kick_all(server, &kick, error);
	done = leases - kick_count(server, &kick);
	if (r < 0 && done > 0) { /* the memory ran out amid the leases */
		why = *error;
		error_set(error, r, "kick again", "%llu of %llu leases are revoked, then: %s",
			  (unsigned long long)done, (unsigned long long)leases, why.message);
	}
	audit_outcome(request->audit, "%llu lease%s revoked, of %s (pid %d, uid %u)", (unsigned long long)done,
		      done == 1 ? " is" : "s are", holder->peer.command, (int)holder->peer.pid,
		      (unsigned)holder->peer.uid);
	keeping_save(server->keeping);
	request_result(request, &w);
	message_begin_array(&w, "leases");
	revoked_tell(&server->work, REASON, &w);
	message_end(&w);
	if (r == 0)
		request_answer(request, &w);
	else
		message_writer_clear(&w);
	return r;
}
