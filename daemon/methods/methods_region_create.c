/* region_create: who may, and room for the memory, which a loader makes. */
#include "methods.h"
#include "../clients/audit.h"
#include "../ledger/closing.h"
#include "../work/loaders/loader.h"
#include "../work/regions/regions.h"
#include "../work/tiers/host_copies.h"
#include "../work/tiers/room.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int wish_of(struct request *request, const struct region_create_params *params, struct region_wish *ret,
		   struct error *error)
{
	const struct region_kind *kind;
	struct device *device;
	uint64_t step;
	int r = params_device(request->server, params->device, &device, error);

	if (r == 0)
		r = region_kind_find(params->kind, &kind, error);
	if (r < 0)
		return r;
	step = device->granularity ? device->granularity : 1;
	*ret = (struct region_wish){
		.name = params->name,
		.device = device,
		.uid = request->session->peer.uid,
		.by_operator = request->session->kind == SESSION_ADMIN,
		.kind = kind,
		.share = access_region_share(request->session, params->name),
		.many_writers = strcmp(params->writers, REGION_WRITERS_MANY) == 0,
		.owned_by_uid = strcmp(params->owner, REGION_OWNER_UID) == 0,
		.item_bytes = params->item_bytes,
		.ttl_ms = params->ttl_ms,
		.shape = {.chunks = (uint32_t)params->chunks, .blocks = (uint32_t)params->blocks},
		.block_bytes = params->block_bytes,
		.clear = params->clear,
	};
	if (__builtin_add_overflow(params->bytes, step - 1, &ret->memory_bytes))
		return error_set(error, -ENOSPC, NULL, "no device has %llu bytes",
				 (unsigned long long)params->bytes);
	ret->memory_bytes -= ret->memory_bytes % step;
	ret->bytes = kind->has_exact_bytes ? params->bytes : ret->memory_bytes;
	return 0;
}

static int region_make(const struct request *request, const struct region_wish *wish,
		       struct region_user *creator, struct error *error)
{
	struct work *work = &request->server->work;
	struct region_user *user;
	struct ledger *ledger = &request->server->ledger;
	int r = region_check_share(&ledger->regions, wish, ledger->quota,
				   error); /* waiting for room would not help */

	if (r == 0)
		r = budget_check_with_context(wish->device, wish->memory_bytes, error);
	if (r == 0)
		r = regions_make(work, wish, creator, &user, error);
	if (r < 0)
		return r;
	creator->pidfd = -1; /* the region's */
	r = region_await(request, user, error);
	if (r < 0)
		regions_end(work, user->region, CONTROL_REMOVED, 0, error);
	loader_pool_turn(work->loaders);
	return r;
}

/* use NULL: gpuwmd makes one. */
static int create(const struct request *request, const struct region_wish *wish, const struct version_id *use,
		  struct error *error)
{
	const struct region_table *regions = &request->server->ledger.regions;
	struct region_user creator;
	struct region *named;
	int r = params_open(request->server, error);

	if (r == 0)
		r = device_check_there(wish->device, error);
	if (r == 0)
		r = access_make_region(request->session, wish->name, error);
	if (r == 0)
		r = region_user_of(request, &creator, error);
	if (r < 0)
		return r;
	if (use)
		creator.use = *use;
	creator.write = true;
	creator.owns = wish->kind->has_owner || !wish->owned_by_uid;
	r = region_make(request, wish, &creator, error);
	named = r == -EEXIST && wish->name ? region_find_name(regions, wish->name) : NULL;
	if (named && access_sees_region(request->session, named)) /* others don't learn whose it is */
		error_set(error, -EEXIST, "give it another name, or remove that one",
			  "there is a region \"%s\", of uid %u", wish->name, (unsigned)named->is.uid);
	if (r < 0 && creator.pidfd >= 0)
		close(creator.pidfd);
	return r;
}

/* ---- while there is no room ---- */

/* What is asked for, as it is kept while it waits. */
struct asked {
	struct region_wish wish;
	char name[NAME_BYTES_MAX + 1];
	struct version_id use; /* random, or zeros */
	/* It waits, as long as its client asked for, until versions of the same user are freed. */
	bool awaits_quota;
};

/* What a request that ended with this code waits for. may_wait: its client gave it a time. */
static enum room_wait wait_of(const struct request *request, const struct region_wish *wish, bool may_wait,
			      int code)
{
	struct server *server = request->server;

	if (code == -EDQUOT && may_wait && region_quota_comes(server->ledger.quota, wish))
		return ROOM_QUOTA;
	if (code == -ENOSPC)
		host_copies_give_way(&server->work, wish->device, wish->memory_bytes);
	return code == -ENOSPC ? room_wait(&server->work, wish->device, wish->memory_bytes, 0, NULL)
			       : ROOM_NEVER;
}

static void wake_for_room(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct asked *asked = waiter->asked;
	struct error error;
	int r = create(&waiter->request, &asked->wish, &asked->use, &error);
	enum room_wait wait = r < 0 && !expired
				      ? wait_of(&waiter->request, &asked->wish, asked->awaits_quota, r)
				      : ROOM_NEVER;

	(void)changed;
	if (wait == ROOM_CONTEXTS || wait == ROOM_QUOTA ||
	    (wait == ROOM_FREED && (waiter->timed || asked->awaits_quota)))
		return;
	if (r == -ENOSPC)
		room_explain(&waiter->request.server->work, asked->wish.device, asked->wish.memory_bytes,
			     asked->wish.by_operator, &error);
	if (r < 0)
		request_refuse(&waiter->request, &error);
	waiter_free(waiter);
}

static int wait_for_room(struct request *request, const struct asked *given, int64_t wait_ms,
			 struct error *error)
{
	struct asked *asked = malloc(sizeof(*asked));
	struct waiter *waiter;
	int r;

	if (!asked)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = waiter_new(request, WAIT_ROOM, wait_ms, wake_for_room, &waiter, error);
	if (r < 0) {
		free(asked);
		return r;
	}
	*asked = *given;
	snprintf(asked->name, sizeof(asked->name), "%s", given->wish.name ? given->wish.name : "");
	asked->wish.name = given->wish.name ? asked->name : NULL;
	snprintf(waiter->device, sizeof(waiter->device), "%s", asked->wish.device->id);
	waiter->id = asked->use;
	waiter->asked = asked;
	loader_pool_turn(request->server->work.loaders);
	return 0;
}

int method_region_create(struct request *request, const void *given, struct error *error)
{
	const struct region_create_params *params = given;
	struct region_user *user = NULL; /* that an earlier request with the same `use` has made */
	struct asked asked = {0};
	int r;

	if (params->use)
		user = region_asked_before(request, params->use);
	if (user)
		return region_again(request, user,
				    strcmp(user->region->name, params->name ? params->name : "") == 0, error);
	if (params->use)
		asked.use = *params->use;
	r = wish_of(request, params, &asked.wish, error);
	if (r < 0)
		return r; /* there is no wish that could wait */
	r = create(request, &asked.wish, params->use, error);
	if (r >= 0)
		return r;
	switch (wait_of(request, &asked.wish, params->wait_ms != 0, r)) {
	case ROOM_CONTEXTS:
		return wait_for_room(request, &asked, -1, error);
	case ROOM_FREED:
		return wait_for_room(request, &asked, FREED_WAIT_MS, error);
	case ROOM_QUOTA:
		asked.awaits_quota = true;
		return wait_for_room(request, &asked, params->wait_ms, error);
	case ROOM_EVICTED: /* nothing is demoted for regions */
	case ROOM_NEVER:
		break;
	}
	if (r == -ENOSPC)
		room_explain(&request->server->work, asked.wish.device, asked.wish.memory_bytes,
			     asked.wish.by_operator, error);
	return r;
}

/* ---- its memory ---- */

int method_loader_region(struct request *request, const void *given, struct error *error)
{
	const struct loader_region_params *params = given;
	struct work *work = &request->server->work;
	struct region *region;
	struct job *job;
	int fd = -1, r = current_job(request, &job, error);

	if (r < 0)
		return r;
	if (!regions_job_makes(job, params->region, params->bytes))
		return error_set(error, -EINVAL, "use gpuwm-loader and gpuwmd of one release",
				 "this loader has no job to make %llu bytes for this region",
				 (unsigned long long)params->bytes);
	if (packet_take_fd(request->packet, params->memory, &fd) < 0)
		return error_set(error, -EBADMSG, NULL, "the memory came without its descriptor");
	region = region_find(&work->ledger->regions, params->region);
	if (!region || region->state != REGION_MAKING || region->memory_fd >= 0) {
		closing_fds(work->loop, &fd, 1);
		return error_set(error, -ECANCELED, NULL, "nobody waits for this region any more");
	}
	/* Nobody may seal what others are to open for writing. A single writer does seal its memory. */
	if (region->is.many_writers && !region->is.device->kind->is_gpu &&
	    fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL) < 0) {
		error_set(error, -EIO, NULL, "the memory from the loader could not be sealed: %s",
			  strerror(errno));
		closing_fds(work->loop, &fd, 1);
		return error->code;
	}
	regions_take_memory(work, region, fd);
	request_done(request);
	return 0;
}
