#include "regions.h"

#include "../../base/complaint.h"
#include "../../../service/log.h"
#include "../../ledger/closing.h"
#include "../../restart/keeping.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- what is told ---- */

void regions_tell(struct work *work, const struct message_form *form, struct region *region,
		  const struct region_event *event)
{
	char nameless[NAME_BYTES_MAX + 1];
	struct event_about about = {
		.model = region->name,
		.owner = {true, region->is.by_operator, region->is.uid},
		.is_region = true,
	};
	struct region_event told = *event;

	told.region = &region->id;
	told.name = region->name[0] ? region->name : NULL;
	if (!told.name) {
		nameless_model(region->is.uid, nameless);
		about.model = nameless;
	}
	event_emit(work->ledger->events, form, &told, &about);
}

/* Its name, or its id. */
static const char *call(const struct region *region, char text[NAME_BYTES_MAX + 1])
{
	if (region->name[0])
		snprintf(text, NAME_BYTES_MAX + 1, "%s", region->name);
	else
		hex128_format(region->id.bytes, text);
	return text;
}

struct waiter *regions_waiter(const struct work *work, const struct version_id *use)
{
	struct waiter *waiter = work->clients->waiters[WAIT_REGION];

	while (waiter && !version_id_equal(&waiter->id, use))
		waiter = waiter->next;
	return waiter;
}

/* ---- freeing ---- */

void regions_settle(struct work *work, struct region *region)
{
	int control;

	if (region->state != REGION_ENDED || region->busy > 0 || !region_is_unused(region))
		return;
	region->busy++;
	regions_unstore(work, region);
	region->busy--;
	if (region->busy > 0)
		return;
	control = region_drop_control(region);
	closing_fds(work->loop, &control, 1);
	region_free(&work->ledger->regions, region);
	work_later(work, LATER_ROOM);
	work_later(work, LATER_REPORT);
}

/* Descriptors that leave the store. */
struct leaving {
	struct work *work;
	struct region *region;
	unsigned rooms;
};

static void leaving_closed(void *data)
{
	struct leaving *leaving = data;

	leaving->region->busy--;
	regions_settle(leaving->work, leaving->region);
	free(leaving);
}

/* The store has let go of them (error NULL), or may still have them: then they count until gpuwmd's next start. The memory of a region
 * that has ended is closed now. */
static void on_left(void *data, const struct error *error)
{
	struct leaving *leaving = data;
	struct region *region = leaving->region;
	int fd = region->memory_fd;

	if (!error)
		registry_give_fds(leaving->work->ledger->registry, leaving->rooms);
	if (region->state != REGION_ENDED || fd < 0) {
		leaving_closed(leaving);
		return;
	}
	region->memory_fd = -1;
	closing_fds_then(leaving->work->loop, &fd, 1, leaving_closed, leaving);
}

/* names: in the store, 0: none. */
static void take_out(struct work *work, struct region *region, const uint64_t *names, size_t count,
		     unsigned rooms)
{
	struct leaving *leaving = malloc(sizeof(*leaving));
	struct store_batch *batch = keeping_batch_new(work->keeping, count);

	if (!leaving ||
	    !batch) { /* out of memory: they count until the next start, and are closed with the region */
		store_batch_free(batch);
		free(leaving);
		return;
	}
	*leaving = (struct leaving){work, region, rooms};
	region->busy++;
	for (size_t i = 0; i < count; i++) {
		if (names[i])
			store_batch_add(batch, names[i], -1);
	}
	if (keeping_stores(work->keeping)) {
		store_batch_remove(batch, work->loop, on_left, leaving);
		return;
	}
	store_batch_free(batch);
	on_left(leaving, NULL);
}

void regions_unstore(struct work *work, struct region *region)
{
	const unsigned stay = region_is_unused(region) ? 0 : 1;
	const uint64_t names[] = {region->memory_stored_as, stay ? 0 : region->control_stored_as};
	const unsigned rooms = region->rooms - stay;

	if (region->rooms <= stay)
		return;
	region->memory_stored_as = 0;
	if (!stay)
		region->control_stored_as = 0;
	region->rooms = stay;
	take_out(work, region, names, 2, rooms);
}

/* ---- a user goes ---- */

/* The caller settles the region afterwards. */
static void remove_user(struct work *work, struct region_user *user)
{
	struct region *region = user->region;
	const uint64_t name = user->stored_as;
	const unsigned rooms = user->rooms;

	region->busy++; /* without a store take_out ends at once, and may free the region */
	region_unwatch(user);
	region_user_free(&work->ledger->regions, user);
	if (rooms > 0)
		take_out(work, region, &name, 1, rooms);
	region->busy--;
}

/* held: chunks, or blocks, of which a region has the one or the other. */
static void tell_death(struct work *work, const struct region_user *user, uint32_t held)
{
	const char *what = user->region->is.kind->item;
	char name[NAME_BYTES_MAX + 1];

	complain(work->net->complaints, user->uid, COMPLAINT_REGIONS,
		 "%s (pid %llu, uid %u) exited as a user of the region %s, with %u %s%s", user->command,
		 (unsigned long long)user->pid, (unsigned)user->uid, call(user->region, name), held, what,
		 held == 1 ? "" : "s");
	regions_tell(
		work, &event_region_user_lost, user->region,
		&(struct region_event){.slot = user->slot, .pid = user->pid, .uid = user->uid, .chunks = held});
}

/* The region ends, or goes on without the user. The pidfd leaves the store after the state was saved. */
static void region_user_goes(struct work *work, struct region_user *user, bool died)
{
	struct region *region = user->region;
	char name[NAME_BYTES_MAX + 1];
	struct error ignored, why;
	uint32_t held;

	regions_check(work, region, &ignored);
	user->state = USER_GOING;
	held = region_user_left(user);
	scratch_user_left(work, user);
	if (died)
		tell_death(work, user, held);
	error_set(&why, died ? -EOWNERDEAD : -ESHUTDOWN, NULL,
		  "the region %s ended when its owner, %s (pid %llu, uid %u), %s", call(region, name),
		  user->command, (unsigned long long)user->pid, (unsigned)user->uid,
		  died ? "exited" : "closed it");
	if (region_ends_with(user) && region->state == REGION_READY)
		regions_end(work, region, died ? CONTROL_OWNER_DIED : CONTROL_OWNER_CLOSED, user->slot, &why);
	else
		keeping_save(work->keeping);
	remove_user(work, user);
	region_repay(region);
	scratch_hand_on(work, region);
	regions_settle(work, region);
}

void regions_leave(struct work *work, struct region_user *user)
{
	region_user_goes(work, user, false);
}

void regions_user_died(struct work *work, struct region_user *user)
{
	region_user_goes(work, user, true);
}

void regions_turn_away(struct work *work, struct region_user *user, const struct error *why)
{
	struct region *region = user->region;
	struct waiter *waiter = regions_waiter(work, &user->use);

	if (waiter) {
		request_refuse(&waiter->request, why);
		waiter_free(waiter);
	}
	if (user->state == USER_STORING)
		return;
	remove_user(work, user);
	regions_settle(work, region);
}

/* ---- a region ends ---- */

/* Whether the store is being told of its memory, with its first user. */
static bool is_storing(const struct region *region)
{
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (region->users[slot] && region->users[slot]->state == USER_STORING)
			return true;
	}
	return false;
}

/* The job that makes its memory, if that has not ended. */
static void region_cancel_job(struct work *work, const struct region *region, const struct error *why)
{
	for (struct job *job = work->jobs.first; job; job = job->next) {
		if (regions_job_makes(job, &region->id, region->is.memory_bytes)) {
			job_cancel(work, job, why);
			return;
		}
	}
}

void regions_end(struct work *work, struct region *region, enum control_end end, unsigned by,
		 const struct error *why)
{
	const bool was_ready = region->state == REGION_READY;
	char name[NAME_BYTES_MAX + 1];

	if (!region_end(region, end, by, why))
		return;
	region->busy++; /* what follows may remove its last user */
	if (was_ready) {
		keeping_save(work->keeping);
		region_show_end(region);
		complain(work->net->complaints, region->is.uid, COMPLAINT_REGIONS,
			 "the region %s has ended: %s", call(region, name), why->message);
		regions_tell(work, &event_region_ended, region,
			     &(struct region_event){.error = &region->error});
		scratch_refuse_all(work, region);
	} else {
		complain(work->net->complaints, region->is.uid, COMPLAINT_FAILED,
			 "the region %s was not made: %s", call(region, name), why->message);
		region_cancel_job(work, region, why);
	}
	if (was_ready || !is_storing(region))
		regions_unstore(work, region);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) { /* those who are on their way */
		struct region_user *user = region->users[slot];

		if (user && (user->state == USER_COMING || user->state == USER_STORING))
			regions_turn_away(work, user, why);
	}
	region_repay(region);
	region->busy--;
	regions_settle(work, region);
}

void regions_end_all(struct work *work, const struct device *device, const struct error *why)
{
	struct region *region = work->ledger->regions.first, *next;

	for (; region; region = next) {
		next = region->next;
		if (!device || region->is.device == device)
			regions_end(work, region, CONTROL_REMOVED, 0, why);
	}
}

int regions_check(struct work *work, struct region *region, struct error *error)
{
	const char *wrong = region->state == REGION_READY ? region_damage(region) : NULL;
	char name[NAME_BYTES_MAX + 1];
	struct error why;

	if (wrong) {
		error_set(&why, -EUCLEAN, "one of its users wrote there: make a new region",
			  "the control memory of the region %s is damaged: %s", call(region, name), wrong);
		region->busy++;
		regions_end(work, region, CONTROL_DAMAGED, 0, &why);
		region->busy--;
	}
	if (region->state != REGION_ENDED)
		return 0;
	return error_set(error, region->end == CONTROL_OWNER_DIED ? -EOWNERDEAD : -ESHUTDOWN,
			 region->error.detail, "%s", region->error.message);
}
