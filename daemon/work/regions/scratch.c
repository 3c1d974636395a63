#include "regions.h"

#include "../../clients/waiter.h"
#include "../../restart/keeping.h"

#include <errno.h>
#include <stdio.h>

/* ---- who waits ---- */

static struct ref ref_of(const struct region *region)
{
	return (struct ref){.has_id = true, .id = region->id};
}

/* Of those who wait for the region's memory, next_of_name has the next one. */
static struct waiter *first_waiter(const struct clients *clients, const struct region *region)
{
	const struct ref ref = ref_of(region);

	return waiter_name_first(clients, WAIT_SCRATCH, &ref);
}

unsigned scratch_waiting(const struct work *work, const struct region *region)
{
	unsigned count = 0;

	for (const struct waiter *waiter = first_waiter(work->clients, region); waiter;
	     waiter = waiter->next_of_name)
		count++;
	return count;
}

static void scratch_refuse(struct waiter *waiter, const struct error *why)
{
	request_refuse(&waiter->request, why);
	waiter_free(waiter);
}

static void refuse_waiter_of(struct work *work, const struct region_user *user, const char *why)
{
	struct waiter *waiter = first_waiter(work->clients, user->region);
	struct error error;

	while (waiter && !version_id_equal(&waiter->id, &user->use))
		waiter = waiter->next_of_name;
	if (!waiter)
		return;
	error_set(&error, -ECANCELED, NULL, "%s", why);
	scratch_refuse(waiter, &error);
}

void scratch_refuse_all(struct work *work, struct region *region)
{
	struct waiter *waiter, *next;
	struct error why;

	for (waiter = first_waiter(work->clients, region); waiter; waiter = next) {
		next = waiter->next_of_name;
		regions_check(work, region, &why);
		scratch_refuse(waiter, &why);
	}
}

/* before: those who asked before. */
static int time_is_over(const struct region *region, unsigned before, struct error *error)
{
	const struct region_user *holder = region_scratch_holder(region);
	char id[VERSION_ID_TEXT], pid[32] = "of another PID namespace";

	hex128_format(region->id.bytes, id);
	if (holder && holder->pid)
		snprintf(pid, sizeof(pid), "%llu", (unsigned long long)holder->pid);
	return error_set(error, -ETIMEDOUT, "wait_ms waits longer; gpuwmctl regions names its users",
			 "time ran out: process %s (%s) holds the region %s, and %u other%s asked "
			 "for it before",
			 pid, holder ? holder->command : "", region->name[0] ? region->name : id, before,
			 before == 1 ? "" : "s");
}

/* ---- the memory passes on ---- */

static void scratch_answer(const struct request *request, const struct region_user *user)
{
	const bool clear = user->region->is.clear && region_scratch_is_foreign(user);

	request_tell(request, &(struct scratch_acquire_result){.clear = clear});
}

static void give(struct work *work, const struct request *request, struct region_user *user)
{
	region_scratch_give(user);
	keeping_save(work->keeping);
	scratch_answer(request, user);
}

void scratch_hand_on(struct work *work, struct region *region)
{
	struct waiter *waiter = first_waiter(work->clients, region);
	struct region_user *user;

	if (!waiter || region->state != REGION_READY || region_scratch_holder(region))
		return;
	user = region_find_user(&work->ledger->regions, &waiter->id);
	give(work, &waiter->request, user);
	waiter_free(waiter);
}

void scratch_user_left(struct work *work, struct region_user *user)
{
	refuse_waiter_of(work, user, "the process has closed the region, or has exited");
	region_scratch_take_back(user, false);
}

void scratch_release(struct work *work, struct region_user *user, bool untouched)
{
	refuse_waiter_of(work, user, "the process waits for the memory no more");
	if (!region_scratch_take_back(user, untouched))
		return;
	keeping_save(work->keeping);
	scratch_hand_on(work, user->region);
}

/* ---- asking ---- */

/* scratch_hand_on answers those whose turn it is. */
static void scratch_wake(struct waiter *waiter, const struct version *changed, bool expired)
{
	const struct clients *clients = waiter->request.session->client->clients;
	const struct region *region = region_find(&clients->ledger->regions, &waiter->ref.id);
	unsigned before = 0;
	struct error error;

	(void)changed;
	if (!expired)
		return;
	for (const struct waiter *w = first_waiter(clients, region); w != waiter; w = w->next_of_name)
		before++;
	time_is_over(region, before, &error);
	scratch_refuse(waiter, &error);
}

int scratch_ask(struct work *work, const struct request *request, struct region_user *user, int64_t wait_ms,
		struct error *error)
{
	struct region *region = user->region;
	struct waiter *waiter;
	int r;

	refuse_waiter_of(work, user, "the process has asked again with the same \"use\"");
	if (region_scratch_holder(region) == user) {
		scratch_answer(request, user);
		return 0;
	}
	if (!region_scratch_holder(region)) {
		give(work, request, user);
		return 0;
	}
	if (wait_ms == 0)
		return time_is_over(region, scratch_waiting(work, region), error);
	r = waiter_new(request, WAIT_SCRATCH, wait_ms, scratch_wake, &waiter, error);
	if (r < 0)
		return r;
	waiter->id = user->use;
	waiter->ref = ref_of(region);
	r = waiter_name_enter(waiter);
	if (r == 0)
		return 0;
	waiter_free(waiter);
	return error_set(error, r, NULL, "gpuwmd is out of memory");
}
