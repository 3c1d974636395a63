/* Regions: a region comes to be, a user comes. */
#include "regions.h"

#include "../../restart/keeping.h"
#include "../loaders/loader.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- a user comes ---- */

/* The region of its first user does not come to be. */
static void turn_away(struct work *work, struct region_user *user, const struct error *why)
{
	if (user->region->state == REGION_MAKING)
		regions_end(work, user->region, CONTROL_REMOVED, 0, why);
	else
		regions_turn_away(work, user, why);
}

static int check_arrival(struct work *work, struct region_user *user, const struct error *stored,
			 struct error *error)
{
	if (stored) {
		*error = *stored;
		return error->code;
	}
	if (user->region->state == REGION_ENDED)
		return regions_check(work, user->region, error);
	if (!regions_waiter(work, &user->use))
		return error_set(error, -ECANCELED, NULL, "the connection of who asked for it has ended");
	return region_watch(work, user, regions_user_died, error);
}

/* The store has its pidfd (error NULL), and the memory of a new region. */
static void user_arrive(struct work *work, struct region_user *user, const struct error *error)
{
	struct region *region = user->region;
	const bool is_new = region->state == REGION_MAKING;
	struct waiter *waiter;
	struct error why;

	user->state = USER_COMING;
	if (check_arrival(work, user, error, &why) < 0) {
		turn_away(work, user, &why);
		return;
	}
	user->state = USER_HERE;
	if (is_new)
		region->state = REGION_READY;
	region_user_came(user);
	keeping_save(work->keeping);
	if (is_new)
		regions_tell(work, &event_region_made, region,
			     &(struct region_event){.device = region->is.device->id,
						    .uid = region->is.uid,
						    .bytes = region->is.bytes});
	waiter = regions_waiter(work, &user->use);
	waiter->wake(waiter, NULL, false);
}

struct storing {
	struct work *work;
	struct region_user *user;
};

static void on_stored(void *data, const struct error *error)
{
	const struct storing storing = *(struct storing *)data;
	struct region *region = storing.user->region;

	free(data);
	user_arrive(storing.work, storing.user, error);
	region->busy--;
	regions_settle(storing.work, region);
}

void regions_welcome(struct work *work, struct region_user *user)
{
	struct region *region = user->region;
	struct storing *storing = malloc(sizeof(*storing));
	struct store_batch *batch = keeping_batch_new(work->keeping, 3);
	struct error error;

	region->busy++;
	if (!storing || !batch) {
		store_batch_free(batch);
		free(storing);
		error_set(&error, -ENOMEM, NULL, "gpuwmd is out of memory");
		turn_away(work, user, &error);
		region->busy--;
		regions_settle(work, region);
		return;
	}
	*storing = (struct storing){work, user};
	if (!keeping_stores(work->keeping)) {
		store_batch_free(batch);
		on_stored(storing, NULL);
		return;
	}
	user->state = USER_STORING;
	keeping_add(work->keeping, batch, &region->memory_stored_as, region->memory_fd);
	keeping_add(work->keeping, batch, &region->control_stored_as, region->control_fd);
	keeping_add(work->keeping, batch, &user->stored_as, user->pidfd);
	store_batch_put(batch, work->loop, on_stored, storing);
}

int regions_use(struct work *work, struct region *region, const struct region_user *like,
		struct region_user **ret_user, struct error *error)
{
	struct region_table *table = &work->ledger->regions;
	struct region_user *user;
	int r = region_user_add(table, region, like, &user, error);

	if (r < 0)
		return r;
	r = region_user_charge(user, work->ledger->quota, false, error);
	if (r == 0) /* what is taken and not charged counts as operators' */
		r = registry_take_fds(work->ledger->registry, 1, error);
	if (r == 0) {
		user->rooms = 1;
		*ret_user = user;
		return 0;
	}
	user->pidfd = -1; /* the caller's */
	region_user_free(table, user);
	return r;
}

/* ---- a region comes to be ---- */

/* A loader makes the memory, since gpuwmd touches no device. */
struct region_job {
	struct job job;
	struct version_id region;
	uint64_t bytes;
};

bool regions_job_makes(const struct job *job, const struct version_id *region, uint64_t bytes)
{
	const struct region_job *own = (const struct region_job *)job;

	return job->kind == JOB_REGION && version_id_equal(&own->region, region) && own->bytes == bytes;
}

/* For the log and for `jobs`; the tag is the region's id. */
static int add_job(struct work *work, struct region *region, struct error *error)
{
	char model[NAME_BYTES_MAX + 1], tag[VERSION_ID_TEXT];
	struct job *job;
	int r;

	nameless_model(region->is.uid, model);
	hex128_format(region->id.bytes, tag);
	r = job_new(work,
		    &(struct job_wish){JOB_REGION, region->name[0] ? region->name : model, tag, region->is.uid,
				       region->is.by_operator},
		    &job, error);
	if (r < 0)
		return r;
	r = job_add_device(job, region->is.device);
	if (r < 0) {
		job_drop(&work->jobs, job);
		return error_set(error, r, NULL, "gpuwmd is out of memory");
	}
	((struct region_job *)job)->region = region->id;
	((struct region_job *)job)->bytes = region->is.memory_bytes;
	region->busy++;
	work_later(work, LATER_TURN);
	return 0;
}

/* What can be undone without a trace comes first. */
static int region_prepare(struct work *work, struct region *region, const struct region_user *creator,
			  struct region_user **ret_user, struct error *error)
{
	struct ledger *ledger = work->ledger;
	int r = region_charge(region, ledger->quota, false, error);

	if (r == 0)
		r = registry_take_fds(ledger->registry, 2, error);
	if (r < 0)
		return r;
	region->rooms = 2;
	r = regions_use(work, region, creator, ret_user, error);
	if (r < 0)
		return r;
	r = add_job(work, region, error);
	if (r == 0)
		return 0;
	(*ret_user)->pidfd = -1; /* the caller's */
	registry_give_fds(ledger->registry, (*ret_user)->rooms);
	region_user_free(&ledger->regions, *ret_user);
	return r;
}

int regions_make(struct work *work, const struct region_wish *wish, const struct region_user *creator,
		 struct region_user **ret_user, struct error *error)
{
	struct ledger *ledger = work->ledger;
	struct region *region;
	int r = region_add(&ledger->regions, wish, &region, error);

	if (r < 0)
		return r;
	r = region_prepare(work, region, creator, ret_user, error);
	if (r == 0)
		return 0;
	registry_give_fds(ledger->registry, region->rooms);
	region_free(&ledger->regions, region);
	return r;
}

static struct region_user *first_user(const struct region *region)
{
	unsigned slot = 0;

	while (!region->users[slot])
		slot++;
	return region->users[slot];
}

/* Control memory that the thread pool makes. */
struct making {
	uv_work_t job; /* first */
	struct work *work;
	struct region *region;
	struct control_shape shape;
	struct region_control control;
	int result;
};

static void on_make(uv_work_t *job)
{
	struct making *making = (struct making *)job;

	making->result = region_control_new(making->shape, &making->control);
}

static void not_made(struct work *work, struct region *region, int result)
{
	struct error error;

	region_control_failed(result, &error);
	if (region->state != REGION_ENDED)
		turn_away(work, first_user(region), &error);
}

static void on_made(uv_work_t *job, int status)
{
	const struct making making = *(struct making *)job;
	struct region *region = making.region;

	(void)status; /* nobody cancels it */
	free(job);
	if (making.result < 0) {
		not_made(making.work, region, making.result);
	} else if (region->state == REGION_ENDED) { /* its user has gone */
		region_control_free(&making.control);
	} else {
		region_take_control(region, &making.control);
		regions_welcome(making.work, first_user(region));
	}
	region->busy--;
	regions_settle(making.work, region);
}

void regions_take_memory(struct work *work, struct region *region, int memory_fd)
{
	struct making *making = malloc(sizeof(*making));

	region->memory_fd = memory_fd;
	region->busy++;
	if (making) {
		*making = (struct making){.work = work, .region = region, .shape = region->is.shape};
		if (uv_queue_work(work->loop, &making->job, on_make, on_made) == 0)
			return;
		free(making);
	}
	not_made(work, region, -ENOMEM);
	region->busy--;
	regions_settle(work, region);
}

static size_t job_region_put(struct message_writer *w, const struct job *job, const struct config *config,
			     int ret_fds[PACKET_FDS_MAX])
{
	const struct region_job *own = (const struct region_job *)job;

	(void)config;
	(void)ret_fds;
	record_put(w, form_job_region.params,
		   &(struct job_region_params){&own->region, job->devices[0]->id, own->bytes});
	return 0;
}

static void job_region_end(struct work *work, struct job *job, const struct error *error)
{
	struct region *region = region_find(&work->ledger->regions, &((struct region_job *)job)->region);
	struct loader *maker = loader_of(work->loaders, job);
	struct error unfinished;

	if (!region)
		return;
	if (error && maker && region->memory_charge) /* it may still hold the memory */
		loader_keep(maker, shared_charge_use(region->memory_charge));
	if (region->memory_fd < 0) {
		error_set(&unfinished, -EIO, NULL, "gpuwm-loader ended its job without the region's memory");
		regions_end(work, region, CONTROL_REMOVED, 0, error ? error : &unfinished);
	}
	region->busy--;
	regions_settle(work, region);
}

const struct job_actions job_region = {
	.size = sizeof(struct region_job), .put = job_region_put, .end = job_region_end};

void regions_abandon(struct work *work)
{
	struct region *region = work->ledger->regions.first, *next;
	struct error why;

	error_set(&why, -ECANCELED, NULL, "the connection of who asked for it has ended");
	for (; region; region = next) {
		next = region->next;
		if (region->state == REGION_MAKING && !regions_waiter(work, &first_user(region)->use))
			regions_end(work, region, CONTROL_REMOVED, 0, &why);
	}
}
