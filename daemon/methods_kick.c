#include "methods.h"
#include "keeping.h"
#include "revoked.h"
#include "versions.h"

#include <errno.h>

#define REASON "an operator revoked it"

/* Which leases: one of the three. */
enum by { BY_LEASE, BY_PID, BY_UID };
static const char *const keys[] = {[BY_LEASE] = "lease", [BY_PID] = "pid", [BY_UID] = "uid"};
#define KEYS (sizeof(keys) / sizeof(keys[0]))

struct kick {
	enum by by;
	uint64_t number;
};

static int kick_fields(struct fields *params, struct kick *kick, struct error *error)
{
	unsigned given = 0;
	int r;

	for (size_t i = 0; i < KEYS; i++) {
		if (!fields_have(params, keys[i]))
			continue;
		*kick = (struct kick){(enum by)i, fields_u64(params, keys[i])};
		given++;
	}
	r = params_check(params, error);
	if (r == 0 && given != 1)
		r = error_set(error, -EINVAL, "kick takes one of lease, pid and uid", "%u of them came", given);
	if (r == 0 && kick->by == BY_PID && kick->number == 0)
		r = error_set(error, -EINVAL, "kick their leases, or their uid",
			      "pid 0 stands for all processes of other PID namespaces");
	return r;
}

static bool concerns(const struct kick *kick, const struct session *session)
{
	if (session->kind == SESSION_LOADER || !session->leases)
		return false;
	if (kick->by == BY_PID)
		return session->peer.pid > 0 && (uint64_t)session->peer.pid == kick->number;
	return kick->by == BY_UID && session->peer.uid == kick->number;
}

static uint64_t count(const struct server *server, const struct kick *kick)
{
	uint64_t found = 0;

	if (kick->by == BY_LEASE)
		return lease_by_id(server->registry, kick->number) != NULL;
	for (const struct session *s = server->sessions; s; s = s->next) {
		const struct lease *lease = concerns(kick, s) ? s->leases : NULL;

		for (; lease; lease = lease->next_of_holder)
			found++;
	}
	return found;
}

static int found_nothing(const struct server *server, const struct kick *kick, struct error *error)
{
	unsigned long long number = kick->number;

	if (kick->by == BY_LEASE && revoked_find(server, number))
		return error_set(error, -ENOENT, "its process may still map the memory: end it",
				 "lease %llu is revoked already", number);
	if (kick->by == BY_LEASE)
		return error_set(error, -ENOENT, "gpuwmctl ps lists them", "there is no lease %llu", number);
	return error_set(error, -ENOENT, "gpuwmctl ps lists who has leases", "%s %llu has no lease",
			 keys[kick->by], number);
}

/* A lease of a version that was retired by force need not be remembered: nobody gets one of it again. */
static int kick_lease(struct server *server, struct lease *lease, struct error *error)
{
	struct version *version = lease->version;
	const bool known = version->forced || lease_is_revoked(server->registry, lease->id);
	int r = known ? 0 : version_revoke_id(version, lease->id, error);

	if (r == 0)
		r = revoked_add(server, lease, error);
	if (r == 0)
		versions_mark_unused(server, version);
	return r;
}

static int kick_all(struct server *server, const struct kick *kick, struct error *error)
{
	int r = 0;

	if (kick->by == BY_LEASE)
		return kick_lease(server, lease_by_id(server->registry, kick->number), error);
	for (struct session *s = server->sessions; s && r == 0; s = s->next) {
		bool concerned = concerns(kick, s);

		while (concerned && s->leases && r == 0)
			r = kick_lease(server, s->leases, error);
	}
	return r;
}

static int check_room(const struct server *server, uint64_t leases, struct error *error)
{
	const struct registry_counts counts = registry_counts(server->registry);

	if (leases > REVOKED_IDS_MAX - counts.revoked_ids)
		return error_set(
			error, -EDQUOT, "ids go with their versions: retire versions, by force if need be",
			"%llu leases are to be kicked and gpuwmd remembers %llu; at most %d",
			(unsigned long long)leases, (unsigned long long)counts.revoked_ids, REVOKED_IDS_MAX);
	return 0;
}

/* Saved before anybody is told: a client that comes back after a kill is refused too. */
int method_kick(struct request *request, struct fields *params, struct error *error)
{
	struct server *server = request->server;
	struct message_writer w;
	struct kick kick = {0};
	uint64_t leases;
	int r = kick_fields(params, &kick, error);

	if (r < 0)
		return r;
	leases = count(server, &kick);
	r = leases == 0 ? found_nothing(server, &kick, error) : check_room(server, leases, error);
	if (r < 0)
		return r;
	r = kick_all(server, &kick, error);
	keeping_save(server->keeping);
	request_result(request, &w);
	message_begin_array(&w, "leases");
	revoked_tell(server, REASON, &w);
	message_end(&w);
	if (r == 0)
		request_answer(request, &w);
	else
		message_writer_clear(&w);
	return r;
}
