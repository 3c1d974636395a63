#include "rights.h"

#include "../work/loaders/loader.h"
#include "server.h"
#include "../net/session.h"

static bool is_in_named_group(const struct session *session, const struct joiners *joiners)
{
	for (uint32_t i = 0; i < joiners->gid_count; i++) {
		if (peer_in_group(session->sock, &session->peer, joiners->gids[i]))
			return true;
	}
	return false;
}

bool may_take_part(const struct session *session, const struct version *version)
{
	const uid_t uid = session->peer.uid;
	const struct job *job = session->client->loader ? loader_job(session->client->loader) : NULL;

	if (session->kind == SESSION_ADMIN)
		return true;
	if (session->kind == SESSION_LOADER)
		return job && version_id_equal(&job->version, &version->id);
	/* Root of a container has the uid of an operator. */
	if (version->owner == uid && !version->by_operator)
		return true;
	return version->joiners &&
	       (joiners_have_uid(version->joiners, uid) || is_in_named_group(session, version->joiners));
}
