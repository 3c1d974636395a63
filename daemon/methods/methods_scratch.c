/* scratch_acquire and scratch_release: who may ask for the scratch memory of a region, and give it back. */
#include "methods.h"
#include "../work/regions/regions.h"
#include "../work/regions/scratch.h"

#include <errno.h>

/* Another process is told of no use but its own. */
static int find_user(const struct request *request, const struct version_id *use, struct region_user **ret,
		     struct error *error)
{
	const struct peer *peer = &request->session->peer;
	struct region_user *user = region_find_user(&request->server->ledger.regions, use);

	if (!user || user->state != USER_HERE || user->uid != peer->uid || user->pid != peer_pid(peer))
		return error_set(error, -ENOENT, "open the region first",
				 "this process has no region open with this \"use\"");
	if (user->region->is.kind != &region_kind_scratch)
		return error_set(error, -EINVAL, NULL, "the region is of kind %s, not scratch",
				 user->region->is.kind->name);
	*ret = user;
	return 0;
}

int method_scratch_acquire(struct request *request, const void *given, struct error *error)
{
	const struct scratch_acquire_params *params = given;
	struct work *work = &request->server->work;
	struct region_user *user;
	int r = find_user(request, params->use, &user, error);

	if (r == 0 && !user->write)
		r = error_set(error, -EACCES, "open it with \"write\"",
			      "this process has opened the region for reading only");
	if (r == 0)
		r = regions_check(work, user->region, error);
	return r < 0 ? r : scratch_ask(work, request, user, params->wait_ms, error);
}

int method_scratch_release(struct request *request, const void *given, struct error *error)
{
	const struct scratch_release_params *params = given;
	struct region_user *user;
	int r = find_user(request, params->use, &user, error);

	if (r < 0)
		return r;
	scratch_release(&request->server->work, user, params->untouched);
	request_done(request);
	return 0;
}
