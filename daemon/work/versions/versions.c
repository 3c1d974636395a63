#include "versions_internal.h"
#include "claims.h"
#include "../../base/complaint.h"
#include "../../restart/keeping.h"
#include "../loaders/loader.h"
#include "publishers.h"
#include "../tiers/moves.h"
#include "sharing.h"
#include "../../ledger/closing.h"
#include "../../net/session.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- ready ---- */

static uint64_t generation_of_current(const struct work *work, const char *model)
{
	struct version *found;
	uint64_t generation = 0;
	struct ref ref = {0};

	snprintf(ref.model, sizeof(ref.model), "%s", model);
	snprintf(ref.name, sizeof(ref.name), "%s", ALIAS_CURRENT);
	registry_find(work->ledger->registry, &ref, &found, &generation, NULL);
	return generation;
}

/* The alias was free when the publish began, and its beginner might move it; that may have changed. */
static int alias_stands(const struct work *work, const struct publish *publish, struct error *error)
{
	struct version *version = publish->version;
	int r = access_swap_late(work->clients, version, publish->groups, publish->group_count, error);

	return r < 0 ? r
		     : registry_swap_allowed(work->ledger->registry, model_name(version->model), publish->alias,
					     publish->has_expect ? &publish->expect : NULL, error);
}

/* If the alias can't be moved, the version is ready all the same: with `expect`, where alias_stands came before, only for want
 * of memory. */
static void move_alias(struct work *work, const struct publish *publish, struct swap_result *ret)
{
	struct version *version = publish->version;
	const char *model = model_name(version->model), *alias = publish->alias;
	struct error error;

	if ((publish->has_expect || alias_stands(work, publish, &error) == 0) &&
	    registry_swap(work->ledger->registry, &(struct alias_move){model, alias, version, NULL}, ret,
			  &error) == 0)
		return;
	error_set(&version->error, error.code, error.detail,
		  "%s@%s is ready, but its alias %s was not moved: %s", model, version->tag, alias,
		  error.message);
	complain(work->net->complaints, version->owner, COMPLAINT_FAILED, "%s", version->error.message);
	job_note(&work->jobs, &version->id, &version->error);
}

/* False: the old version stays as it is, and so does `previous`. */
static bool retire_old(struct work *work, struct version *old, struct error *ret_kept)
{
	if (registry_retire(work->ledger->registry, old, ret_kept) < 0)
		return false;
	freeing_begin(work, old);
	return true;
}

/* The aliases that a version takes as it becomes ready. Clients are told when the state is saved. */
struct aliases_taken {
	struct swap_result current; /* `changed`: the model had neither this alias nor another version */
	struct swap_result wished; /* of the alias that the publish names */
	char alias[NAME_BYTES_MAX + 1];
	struct version *retired; /* what `wished` named before; NULL: it stays as it is */
};

static void take_aliases(struct work *work, const struct publish *publish, bool is_current,
			 struct aliases_taken *ret)
{
	struct version *version = publish->version;
	struct error kept;

	*ret = (struct aliases_taken){.current = {.now = version, .changed = is_current}};
	ret->current.generation = generation_of_current(work, model_name(version->model));
	if (!publish->alias[0])
		return;
	snprintf(ret->alias, sizeof(ret->alias), "%s", publish->alias);
	move_alias(work, publish, &ret->wished);
	if (!ret->wished.changed || !ret->wished.old || !publish->retire_old)
		return;
	if (retire_old(work, ret->wished.old, &kept))
		ret->retired = ret->wished.old;
	else /* the jobs that made the version say why */
		job_note(&work->jobs, &version->id, &kept);
}

static void tell_ready(struct work *work, const struct version *version, const struct aliases_taken *taken)
{
	const char *model = model_name(version->model);

	tell_version(work, &event_ready, version);
	if (taken->current.changed)
		tell_swapped(work, model, ALIAS_CURRENT, &taken->current);
	if (taken->wished.changed)
		tell_swapped(work, model, taken->alias, &taken->wished);
	if (taken->retired)
		tell_retiring(work, taken->retired, NULL);
}

/* All parts are here, and in the store where there is one: the publish ends. Negative: it does not. */
static int become_ready(struct work *work, struct publish *publish, struct error *error)
{
	struct version *version = publish->version;
	struct aliases_taken taken;
	struct published end;
	bool is_current;

	if (sharing_check_segments(version, error) < 0 ||
	    (publish->has_expect && alias_stands(work, publish, error) < 0) ||
	    registry_ready(work->ledger->registry, version, &is_current, error) < 0)
		return error->code;
	version->storing = false;
	work_later(work, LATER_RESIDENTS);
	cached_set_time(version);
	take_aliases(work, publish, is_current, &taken);
	published_look(work, publish, &end);
	publish_end(work->ledger->publishes, publish);
	keeping_save(work->keeping);
	tell_ready(work, version, &taken);
	published_tell(work, &end, NULL);
	waiters_wake(work->clients, WAIT_CHECKED, version);
	waiters_wake(work->clients, WAIT_READY, version);
	claims_concluded(work, version);
	jobs_conclude(work, &version->id, NULL);
	versions_lose_new(work, version);
	if (work->drained)
		versions_retire_all(work);
	cached_ready(work, version);
	if (version_is_nameless(version)) /* its maker has a lease of it now, or has gone */
		versions_free_unused(work, version);
	return 0;
}

/* A version on its way into the store. */
struct storing {
	struct work *work;
	struct version_id publish;
	struct error error; /* why it does not get there */
};

static void on_unstored(void *data, const struct error *removing)
{
	struct storing *storing = data;
	struct work *work = storing->work;
	struct error error = storing->error;
	struct publish *publish = publish_find(work->ledger->publishes, &storing->publish);

	free(storing);
	if (removing) /* the next start removes it */
		keeping_not_removed(work->keeping, publish->version);
	publish->version->storing = false;
	versions_fail(work, publish, &error, NULL);
	waiters_wake(work->clients, WAIT_STORED, NULL);
}

/* What is in the store leaves it, and then the publish fails. */
static void unstore(struct storing *storing, struct version *version, const struct error *why)
{
	struct work *work = storing->work;
	struct store_batch *batch = keeping_batch(work->keeping, version, false);

	storing->error = *why;
	if (batch) {
		store_batch_remove(batch, work->loop, on_unstored, storing);
		return;
	}
	version_let_go(version); /* so that on_unstored knows which segments stay in the store */
	on_unstored(storing, why);
}

static void on_stored(void *data, const struct error *error)
{
	struct storing *storing = data;
	struct work *work = storing->work;
	struct publish *publish = publish_find(work->ledger->publishes, &storing->publish);
	struct error reason;

	if (error || become_ready(work, publish, &reason) < 0) {
		unstore(storing, publish->version, error ? error : &reason);
		return;
	}
	free(storing);
	waiters_wake(work->clients, WAIT_STORED, NULL);
}

static int begin_storing(struct work *work, struct publish *publish, struct error *error)
{
	struct storing *storing = calloc(1, sizeof(*storing));
	struct store_batch *batch = storing ? keeping_batch(work->keeping, publish->version, true) : NULL;

	if (!batch) {
		free(storing);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	*storing = (struct storing){.work = work, .publish = publish->id};
	publish->version->storing = true;
	store_batch_put(batch, work->loop, on_stored, storing);
	return 0;
}

/* A version without a name, which is ready already. */
struct storing_late {
	struct work *work;
	struct version *version; /* as if a job read it: it is not freed before it is in the store */
};

static void on_stored_late(void *data, const struct error *error)
{
	struct storing_late *late = data;
	struct work *work = late->work;
	struct version *version = late->version;

	free(late);
	if (error)
		complain(work->net->complaints, version->owner, COMPLAINT_FAILED,
			 "a restart would lose %s@%s: %s", model_name(version->model), version->tag,
			 error->message);
	version->readers--;
	versions_free_unused(work, version);
}

/* Nobody waits for the store: if a restart loses the version, its users make another one. */
static int store_late(struct work *work, struct publish *publish, struct error *error)
{
	struct version *version = publish->version;
	struct storing_late *late = malloc(sizeof(*late));
	struct store_batch *batch = late ? keeping_batch(work->keeping, version, true) : NULL;
	int r;

	if (!batch) {
		free(late);
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	*late = (struct storing_late){work, version};
	version->readers++;
	r = become_ready(work, publish, error);
	if (r < 0) {
		version->readers--;
		store_batch_free(batch);
		free(late);
		return r;
	}
	store_batch_put(batch, work->loop, on_stored_late, late);
	return 0;
}

int versions_complete(struct work *work, struct publish *publish, struct error *error)
{
	struct error reason;
	int r;

	if (!version_complete(publish->version) || publish->version->storing)
		return 0;
	if (!keeping_stores(work->keeping))
		r = become_ready(work, publish, &reason);
	else if (version_is_nameless(publish->version))
		r = store_late(work, publish, &reason);
	else
		r = begin_storing(work, publish, &reason);
	if (r == 0)
		return 0;
	versions_fail(work, publish, &reason, NULL);
	*error = reason;
	return r;
}

/* ---- what operators change ---- */

int versions_swap(struct work *work, const struct versions_swap *swap, struct swap_result *ret,
		  struct error *ret_kept, struct error *error)
{
	bool retired = false;
	int r = registry_swap(work->ledger->registry,
			      &(struct alias_move){swap->model, swap->alias, swap->to, swap->expect}, ret,
			      error);

	ret_kept->code = 0;
	if (r < 0 || !ret->changed)
		return r;
	if (swap->to)
		moves_stop_demotion(work, swap->to, "an alias that moves to it");
	if (swap->retire_old && ret->old)
		retired = retire_old(work, ret->old, ret_kept);
	keeping_save(work->keeping);
	tell_swapped(work, swap->model, swap->alias, ret);
	if (retired)
		tell_retiring(work, ret->old, NULL);
	if (swap->to)
		waiters_wake(work->clients, WAIT_READY, swap->to);
	return 0;
}

int versions_pin(struct work *work, struct version *version, const char *pin, struct error *error)
{
	int r = version_pin(version, pin, error);

	if (r < 0)
		return r;
	moves_stop_demotion(work, version, "a pin");
	keeping_save(work->keeping);
	return 0;
}

int versions_unpin(struct work *work, struct version *version, const char *pin, struct error *error)
{
	int r = version_unpin(version, pin, error);

	if (r < 0)
		return r;
	freeing_begin(work, version);
	keeping_save(work->keeping);
	return 0;
}

/* ---- tainted ---- */

void versions_taint(struct work *work, struct version *version, const struct replica *replica,
		    const struct error *found)
{
	version_taint(version, found);
	keeping_save(work->keeping);
	tell_tainted(work, version, replica, found);
	log_warning("%s@%s is tainted on %s (rank %u, leases: %llu): %s", model_name(version->model),
		    version->tag, replica->device->id, replica->rank, (unsigned long long)version->lease_count,
		    found->message);
}

/* ---- failed ---- */

static void on_given_up(void *data)
{
	struct work *work = data;

	work_later(work, LATER_ROOM);
}

/* Whatever may still hold the part's memory lets go of its charge by itself. With one use
 * for the caller. */
static struct shared_charge *give_up_part(struct work *work, struct publish *publish, struct publish_part *part)
{
	struct replica *replica = &publish->version->replicas[part->replica];
	struct shared_charge *shared = shared_charge_of_part(replica);
	struct loader *maker = loader_of(work->loaders, part->publisher);
	struct loader *checker = loader_of(work->loaders, part->checker);

	if (maker)
		loader_keep(maker, shared_charge_use(shared));
	if (checker && checker != maker)
		loader_keep(checker, shared_charge_use(shared));
	shared_charge_use(shared);
	closing_part(work->loop, replica, shared, on_given_up, work);
	return shared;
}

/* `dead` has left, but its process may still be there, with the memory of its parts. */
static void give_up_all(struct work *work, struct publish *publish, const struct session *dead)
{
	struct shared_charge *mourned[PARTS_PER_VERSION_MAX];
	uint32_t count = 0;

	version_let_go(publish->version);
	for (uint32_t i = 0; i < publish->part_count; i++) {
		struct shared_charge *shared = give_up_part(work, publish, &publish->parts[i]);

		if (dead && publish->parts[i].publisher == dead && !dead->dead)
			mourned[count++] = shared;
		else
			shared_charge_drop(shared);
	}
	if (count > 0)
		mourn(work, dead->peer.pidfd, mourned, count, &publish->charge);
}

void versions_fail(struct work *work, struct publish *publish, const struct error *reason,
		   const struct session *dead)
{
	struct version *version = publish->version;
	struct job *checkers[PARTS_PER_VERSION_MAX];
	uint32_t count = publish->part_count;
	struct published end;

	for (uint32_t i = 0; i < count; i++)
		checkers[i] = publish->parts[i].checker;
	published_look(work, publish, &end);
	give_up_all(work, publish, dead);
	publish_end(work->ledger->publishes, publish);
	registry_fail(work->ledger->registry, version, reason);
	complain(work->net->complaints, version->owner, COMPLAINT_FAILED, "%s@%s failed: %s",
		 model_name(version->model), version->tag, reason->message);
	tell_failed(work, version);
	published_tell(work, &end, reason);
	versions_failed_arm(work);
	waiters_wake(work->clients, WAIT_CHECKED, version);
	waiters_wake(work->clients, WAIT_READY, version);
	claims_concluded(work, version);
	jobs_conclude(work, &version->id, reason);
	for (uint32_t i = 0; i < count; i++) {
		if (checkers[i])
			job_cancel(work, checkers[i], reason);
	}
	work_later(work, LATER_REPORT);
	work_later(work, LATER_TURN); /* it may end jobs and publishes, which the caller goes through */
}

void versions_fail_of(struct work *work, const void *publisher, const struct error *reason,
		      const struct session *dead)
{
	struct publish *publish = publish_next(work->ledger->publishes, NULL), *next;
	struct error unbegun;

	for (; publish; publish = next) {
		bool last = publish_leave(publish, publisher);

		next = publish_next(work->ledger->publishes, publish);
		if (publish->version->storing)
			continue;
		if (publish_has_publisher(publish, publisher)) {
			versions_fail(work, publish, reason, dead);
			continue;
		}
		if (!last || publish->version->state != VERSION_BUILDING)
			continue;
		/* Who began parts has committed them and gone, and ranks are left that nobody is to begin. */
		error_set(&unbegun, -ECANCELED,
			  "one of those who began a part stays connected until every rank has been begun",
			  "its publishers left before they had begun all of its %u ranks",
			  publish->version->world);
		versions_fail(work, publish, &unbegun, NULL);
	}
}
