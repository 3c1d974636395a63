/* Regions: who may open, close and remove them, and what a user gets. */
#include "methods.h"
#include "../clients/audit.h"
#include "../restart/inherited.h"
#include "../work/regions/regions.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

/* ---- what a user gets ---- */

/* The memory of host for reading has a descriptor that can't write. Memory of a GPU has one kind only. */
static int memory_for(const struct region_user *user, struct error *error)
{
	const struct region *region = user->region;
	const bool reads_only = !user->write && !region->is.device->kind->is_gpu;
	char path[64];
	int fd;

	snprintf(path, sizeof(path), "/proc/self/fd/%d", region->memory_fd);
	fd = reads_only ? open(path, O_RDONLY | O_CLOEXEC) : fcntl(region->memory_fd, F_DUPFD_CLOEXEC, 0);
	return fd >= 0 ? fd
		       : error_set(error, -errno, NULL, "gpuwmd could not copy the memory's descriptor: %s",
				   strerror(errno));
}

static void tell_use(const struct region_user *user, struct region_use *ret)
{
	const struct region *region = user->region;

	*ret = (struct region_use){
		.region = &region->id,
		.use = &user->use,
		.name = region->name[0] ? region->name : NULL,
		.device = region->is.device->id,
		.kind = region->is.kind->name,
		.writers = region->is.many_writers ? REGION_WRITERS_MANY : REGION_WRITERS_ONE,
		.owner = region->is.owned_by_uid ? REGION_OWNER_UID : REGION_OWNER_PROCESS,
		.bytes = region->is.bytes,
		.chunks = region->is.shape.chunks,
		.item_bytes = region->is.item_bytes,
		.blocks = region->is.shape.blocks,
		.block_bytes = region->is.block_bytes,
		.clear = region->is.clear,
		.ttl_ms = region->is.ttl_ms,
		.slot = user->slot,
		.write = user->write,
		.owns = user->owns && region->is.kind->has_owner,
		.control = 0,
		.memory = 1,
	};
}

static int answer_use(struct request *request, const struct region_user *user, struct error *error)
{
	int fds[2] = {user->region->control_fd, -1};
	struct region_use use;
	struct message_writer w;
	int r = request_copy_fds(fds, 1, error);

	if (r < 0)
		return r;
	fds[1] = memory_for(user, error);
	if (fds[1] < 0) {
		close(fds[0]);
		return error->code;
	}
	tell_use(user, &use);
	request_result(request, &w);
	record_put(&w, request->form->result, &use);
	request_answer_fds(request, &w, fds, 2);
	return 0;
}

/* Other reasons refuse the request without it. */
static void wake_user(struct waiter *waiter, const struct version *changed, bool expired)
{
	struct work *work = &waiter->request.server->work;
	struct region_user *user = region_find_user(&work->ledger->regions, &waiter->id);
	struct error error;

	(void)changed;
	(void)expired;
	if (!user || user->state != USER_HERE)
		return;
	if (answer_use(&waiter->request, user, &error) < 0) {
		/* A process that gets no answer is no user. The region that it made would be nobody's. */
		request_refuse(&waiter->request, &error);
		if (waiter->request.form == &form_region_create)
			regions_end(work, user->region, CONTROL_REMOVED, 0, &error);
		regions_leave(work, user);
	} else if (waiter->request.audit) {
		audit_tell(waiter->request.session, waiter->request.audit, NULL);
	}
	waiter_free(waiter);
}

int region_user_of(const struct request *request, struct region_user *ret, struct error *error)
{
	const struct peer *peer = &request->session->peer;
	const int pidfd = peer_pidfd(request->session->sock);

	*ret = (struct region_user){
		.uid = peer->uid,
		.pid = peer_pid(peer),
		.by_operator = request->session->kind == SESSION_ADMIN,
		.pidfd = pidfd,
	};
	snprintf(ret->command, sizeof(ret->command), "%.*s", CONTROL_COMMAND_BYTES - 1, peer->command);
	if (pidfd >= 0)
		return 0;
	if (pidfd == -ENOPROTOOPT)
		return error_set(error, -ENOTSUP, "use Linux 6.5 or newer",
				 "regions need SO_PEERPIDFD, so that gpuwmd learns when a process exits");
	return error_set(error, pidfd == -EMFILE || pidfd == -ENFILE ? pidfd : -ECANCELED, NULL,
			 "gpuwmd got no pidfd of pid %llu: %s", (unsigned long long)ret->pid, strerror(-pidfd));
}

int region_await(const struct request *request, const struct region_user *user, struct error *error)
{
	struct waiter *waiter;
	int r = waiter_new(request, WAIT_REGION, -1, wake_user, &waiter, error);

	if (r == 0)
		waiter->id = user->use;
	return r;
}

/* ---- a request that is sent again ---- */

static int another_has_it(struct error *error)
{
	return error_set(error, -EINVAL, "make a random one", "another user has this \"use\"");
}

/* An earlier request, which waits, is refused: the later one gets its answer. */
static void asked_again(struct waiter *before)
{
	struct error why;

	error_set(&why, -ECANCELED, NULL, "the process has asked again with the same \"use\"");
	request_refuse(&before->request, &why);
	waiter_free(before);
}

/* The first request is still under way, and of the same method: region_create while the region is made. If its connection has ended,
 * gpuwmd may not know that yet. */
static int await_instead(struct request *request, const struct region_user *user, struct error *error)
{
	struct waiter *before = regions_waiter(&request->server->work, &user->use);
	int r;

	if (user->region->state == REGION_ENDED)
		return error_set(error, -EAGAIN, "ask again",
				 "the first request with this \"use\" has failed, and is not undone yet");
	if ((request->form == &form_region_create) != (user->region->state == REGION_MAKING))
		return another_has_it(error);
	r = region_await(request, user, error);
	if (r == 0 && before)
		asked_again(before);
	return r;
}

static bool waits_with(const struct waiter *waiter, uid_t uid, const struct version_id *use)
{
	const struct message_form *form = waiter->request.form;

	return (form == &form_region_create || form == &form_region_open) &&
	       waiter->request.session->peer.uid == uid && version_id_equal(&waiter->id, use);
}

struct region_user *region_asked_before(const struct request *request, const struct version_id *use)
{
	const struct work *work = &request->server->work;
	struct waiter *before = work->clients->waiters[WAIT_ROOM], *next;

	for (; before; before = next) {
		next = before->next;
		if (waits_with(before, request->session->peer.uid, use))
			asked_again(before);
	}
	return region_find_user(&work->ledger->regions, use);
}

int region_again(struct request *request, struct region_user *user, bool is_same, struct error *error)
{
	const struct peer *peer = &request->session->peer;
	int r;

	if (!is_same || user->uid != peer->uid || user->pid != peer_pid(peer))
		return another_has_it(error);
	if (user->state != USER_HERE)
		return await_instead(request, user, error);
	r = regions_check(&request->server->work, user->region, error);
	return r < 0 ? r : answer_use(request, user, error);
}

/* ---- region_open ---- */

int region_unknown(const char *reference, struct error *error)
{
	return error_set(error, -ENOENT, "gpuwmctl regions lists those that there are", "no region \"%s\"",
			 reference);
}

/* Finds what the session may read, in any state. */
static int find_region(const struct request *request, const char *reference, struct region **ret,
		       struct error *error)
{
	const struct region_table *table = &request->server->ledger.regions;
	struct region *region = NULL;
	struct version_id id = {0};

	if (hex128_parse(reference, id.bytes) == 0)
		region = region_find(table, &id);
	if (!region)
		region = region_find_name(table, reference);
	if (!region || !access_sees_region(request->session, region))
		return region_unknown(reference, error);
	*ret = region;
	return 0;
}

static int check_owner(const struct request *request, const struct region *region, struct error *error)
{
	const struct region_user *owner = region_owner(region);

	if (!region->is.kind->has_owner)
		return error_set(error, -EINVAL, "open it with \"write\"",
				 "no process owns a region of kind %s", region->is.kind->name);
	if (!region->is.owned_by_uid)
		return error_set(error, -EACCES, "make it with the owner \"uid\"",
				 "the region belongs to the process that made it");
	if (!access_is_regions_user(request->session, region))
		return error_set(error, -EACCES, "open it without \"own\"", "the region belongs to uid %u",
				 (unsigned)region->is.uid);
	if (owner)
		return error_set(error, -EBUSY, "that process closes it, or ends",
				 "pid %llu (%s, uid %u) owns the region", (unsigned long long)owner->pid,
				 owner->command, (unsigned)owner->uid);
	return 0;
}

/* Until then a reader could open it again for writing, and the kernel would let it. */
static int check_sealed(const struct region *region, struct error *error)
{
	int seals;

	if (region->is.many_writers || region->is.device->kind->is_gpu)
		return 0;
	seals = memfd_seals(region->memory_fd);
	if (seals >= 0 && seals & F_SEAL_FUTURE_WRITE)
		return 0;
	return error_set(error, -EAGAIN, "try again when its writer has mapped it, and set F_SEAL_FUTURE_WRITE",
			 "the region's only writer has not sealed it yet");
}

static int check_open(const struct request *request, struct region *region,
		      const struct region_open_params *params, struct error *error)
{
	int r = regions_check(&request->server->work, region, error);

	if (region->state == REGION_MAKING)
		return error_set(error, -EAGAIN, "ask again", "the region is being made");
	if (r == 0 && !access_reads_region(request->session, region))
		r = error_set(error, -EACCES, "attach of its section [model.N] says who may",
			      "uid %u may list the region, and not open it",
			      (unsigned)request->session->peer.uid);
	if (r == 0)
		r = check_sealed(region, error);
	if (r == 0 && (params->write || params->own) && !region->is.many_writers)
		r = error_set(error, -EACCES, "open it without \"write\", or make it with many writers",
			      "the region has one writer, the process that made it");
	if (r == 0 && (params->write || params->own))
		r = access_write_region(request->session, region, error);
	if (r == 0 && params->own)
		r = check_owner(request, region, error);
	return r;
}

static int open_region(struct request *request, struct region *region, const struct region_open_params *params,
		       struct error *error)
{
	struct work *work = &request->server->work;
	struct region_user like, *user;
	int r = region_user_of(request, &like, error);

	if (r < 0)
		return r;
	like.owns = params->own;
	like.write = params->write || params->own;
	if (params->use)
		like.use = *params->use;
	r = regions_use(work, region, &like, &user, error);
	if (r < 0) {
		close(like.pidfd);
		return r;
	}
	r = region_await(request, user, error);
	if (r < 0)
		regions_turn_away(work, user, error);
	else
		regions_welcome(work, user);
	return r;
}

static int open_now(struct request *request, const struct region_open_params *params, struct error *error)
{
	struct region *region;
	int r = params_open(request->server, error);

	if (r == 0)
		r = find_region(request, params->region, &region, error);
	if (r < 0)
		return r;
	r = check_open(request, region, params, error);
	if (r == 0)
		return open_region(request, region, params, error);
	regions_settle(&request->server->work, region);
	return r;
}

/* ---- while a quota of its user has no room ---- */

/* A region_open, as it is kept while it waits. */
struct opening {
	struct region_open_params params;
	char region[NAME_BYTES_MAX + 1];
	struct version_id use; /* random, or zeros */
};

static bool quota_will_do(const struct request *request, int code)
{
	return code == -EDQUOT && request->session->kind != SESSION_ADMIN &&
	       region_user_quota_comes(request->server->ledger.quota, request->session->peer.uid);
}

static void wake_for_quota(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct opening *opening = waiter->asked;
	struct error error;
	int r = open_now(&waiter->request, &opening->params, &error);

	(void)changed;
	if (!expired && quota_will_do(&waiter->request, r))
		return;
	if (r < 0)
		request_refuse(&waiter->request, &error);
	waiter_free(waiter);
}

static int wait_for_quota(const struct request *request, const struct region_open_params *params,
			  struct error *error)
{
	struct opening *opening = calloc(1, sizeof(*opening));
	struct waiter *waiter;
	int r;

	if (!opening)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = waiter_new(request, WAIT_ROOM, params->wait_ms, wake_for_quota, &waiter, error);
	if (r < 0) {
		free(opening);
		return r;
	}
	opening->params = *params;
	snprintf(opening->region, sizeof(opening->region), "%s", params->region);
	opening->params.region = opening->region;
	if (params->use) {
		opening->use = *params->use;
		opening->params.use = &opening->use;
	}
	waiter->id = opening->use;
	waiter->asked = opening;
	return 0;
}

int method_region_open(struct request *request, const void *given, struct error *error)
{
	const struct region_open_params *params = given;
	struct region_user *user = NULL;
	struct version_id id = {0};
	bool is_same;
	int r = params_open(request->server, error);

	if (r < 0)
		return r;
	if (params->use)
		user = region_asked_before(request, params->use);
	if (user) {
		is_same = strcmp(user->region->name, params->region) == 0 ||
			  (hex128_parse(params->region, id.bytes) == 0 &&
			   version_id_equal(&user->region->id, &id));
		return region_again(request, user, is_same, error);
	}
	r = open_now(request, params, error);
	return params->wait_ms != 0 && quota_will_do(request, r) ? wait_for_quota(request, params, error) : r;
}

/* ---- region_close, region_remove ---- */

int method_region_close(struct request *request, const void *given, struct error *error)
{
	const struct region_close_params *params = given;
	struct region_user *user = region_find_user(&request->server->ledger.regions, params->use);

	(void)error;
	if (user && user->state == USER_HERE && user->uid == request->session->peer.uid)
		regions_leave(&request->server->work, user);
	request_done(request);
	return 0;
}

int method_region_remove(struct request *request, const void *given, struct error *error)
{
	const struct region_remove_params *params = given;
	struct region *region;
	struct error why;
	int r = find_region(request, params->region, &region, error);

	if (r == 0)
		r = access_remove_region(request->session, region, error);
	if (r < 0)
		return r;
	error_set(&why, -ESHUTDOWN, NULL, "the region was removed by %s (pid %llu, uid %u)",
		  request->session->peer.command, (unsigned long long)peer_pid(&request->session->peer),
		  (unsigned)request->session->peer.uid);
	regions_end(&request->server->work, region, CONTROL_REMOVED, 0, &why);
	request_done(request);
	return 0;
}

/* ---- scratch memory: who may ask for it, and give it back ---- */

/* Another process is told of no use but its own. */
static int find_user(const struct request *request, const struct version_id *use, struct region_user **ret,
		     struct error *error)
{
	const struct peer *peer = &request->session->peer;
	struct region_user *user = region_find_user(&request->server->ledger.regions, use);

	if (!user || user->state != USER_HERE || user->uid != peer->uid || user->pid != peer_pid(peer))
		return error_set(error, -ENOENT, "open the region first",
				 "this process has no region open with this \"use\"");
	if (!user->region->is.kind->has_holder)
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
