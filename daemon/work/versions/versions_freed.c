/* The end of a version: retired, unused, out of the store, closed, its budget returned. */
#include "versions_internal.h"
#include "../../base/complaint.h"
#include "../../base/metrics.h"
#include "../../restart/keeping.h"
#include "../loaders/loader.h"
#include "../tiers/host_copies.h"
#include "../tiers/moves.h"
#include "leases.h"
#include "../../ledger/closing.h"

#include <errno.h>
#include <stdlib.h>

/* A version whose descriptors go. */
struct freeing {
	struct work *work;
	struct version *version;
	struct store_batch *batch; /* NULL: they are in no store */
	uint32_t left; /* parts that are being closed */
	struct freeing *next; /* marked, not begun */
};

/* ---- from unused to gone ---- */

static void freed(struct work *work, struct version *version)
{
	metrics_count(work->net->metrics, METRIC_FREED, 1);
	tell_version(work, &event_freed, version);
	if (!version_is_nameless(version))
		work_later(work, LATER_COMPANIONS);
	registry_remove(work->ledger->registry, version);
	waiters_wake(work->clients, WAIT_FREED, NULL);
	work_later(work, LATER_REPORT);
}

static void on_part_closed(void *data)
{
	struct freeing *freeing = data;

	work_later(freeing->work, LATER_ROOM);
	if (--freeing->left > 0)
		return;
	freed(freeing->work, freeing->version);
	free(freeing);
}

static void close_parts(struct freeing *freeing)
{
	struct version *version = freeing->version;
	uint32_t count = version->replica_count;

	freeing->left = count;
	for (uint32_t i = 0; i < count; i++) {
		struct shared_charge *shared = shared_charge_of_part(&version->replicas[i]);

		loader_pool_keep(freeing->work->loaders, &version->id, i, shared);
		revoked_keep(version, i, shared);
		closing_part(freeing->work->loop, &version->replicas[i], shared, on_part_closed, freeing);
	}
}

/* A service manager that does not answer keeps them: the next gpuwmd finds that they belong to nothing. */
static void on_removed(void *data, const struct error *error)
{
	struct freeing *freeing = data;

	if (error) {
		log_error("%s@%s may stay in the fd store until the next start: %s (%s)",
			  model_name(freeing->version->model), freeing->version->tag, error->message,
			  error->detail);
		keeping_not_removed(freeing->work->keeping, freeing->version);
	}
	close_parts(freeing);
}

/* NULL: there is no memory; it is tried again. */
static struct freeing *freeing_new(struct work *work, struct version *version)
{
	struct freeing *freeing = calloc(1, sizeof(*freeing));

	if (freeing && keeping_stores(work->keeping))
		freeing->batch = keeping_batch(work->keeping, version, false);
	if (freeing && (freeing->batch || !keeping_stores(work->keeping))) {
		freeing->work = work;
		freeing->version = version;
		return freeing;
	}
	free(freeing);
	work_later(work, LATER_FREE_AGAIN);
	complain(work->net->complaints, version->owner, COMPLAINT_FAILED,
		 "out of memory: %s@%s is not freed yet", model_name(version->model), version->tag);
	return NULL;
}

bool freeing_begin(struct work *work, struct version *version)
{
	struct freeing *freeing;
	struct error why;

	/* When gpuwmd stops, leases end that clients will take again from the next one. Nobody gets one again of a
	 * version that was retired by force. */
	if (version->freeing || !version_unwanted(version) || work->net->stopping ||
	    (keeping_grace_ms(work->keeping) > 0 && !version->forced))
		return false;
	jobs_cancel_readers(work, version);
	error_set(&why, -ECANCELED, NULL, "%s@%s is being freed", model_name(version->model), version->tag);
	moves_stop(work, version, &why);
	if (!version_unused(version))
		return false;
	if (!host_copy_drop(work, version)) {
		work_later(work, LATER_FREE_AGAIN);
		return false;
	}
	freeing = freeing_new(work, version);
	if (!freeing)
		return false;
	if (version->state == VERSION_READY)
		version_move(version, VERSION_RETIRING);
	version_let_go(version);
	work_later(work, LATER_COPIES); /* none of its copies has a lease */
	freeing->next = work->freeing;
	work->freeing = freeing;
	version->freeing = true;
	return true;
}

/* A version that nothing holds, and that is not in the store yet, has a reader: it is freed as soon as it is stored. */
bool versions_are_being_freed(const struct work *work, const char *model)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, model, version))) {
		if (version->freeing || (version_unwanted(version) && version->readers > 0))
			return true;
	}
	return false;
}

void versions_coming(void *data, uid_t uid, struct quota_coming *ret)
{
	const struct work *work = data;
	struct version *version = NULL;
	bool all_go = true;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->owner != uid || !(version->freeing || version_unwanted(version)))
			continue;
		version_add_coming(version, ret);
		all_go = all_go && version->freeing;
	}
	ret->in_ms = all_go ? 0 : keeping_grace_ms(work->keeping);
}

void versions_free_again(struct work *work)
{
	struct version *version = NULL;
	bool marked = false;

	if (!work_is_due(work, LATER_FREE_AGAIN))
		return;
	work_done(work, LATER_FREE_AGAIN);
	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		marked |= freeing_begin(work, version);
	if (marked)
		keeping_save(work->keeping);
}

void versions_settle(struct work *work)
{
	struct freeing *freeing = work->freeing, *next;

	work->freeing = NULL;
	for (; freeing; freeing = next) {
		next = freeing->next;
		if (freeing->batch)
			store_batch_remove(freeing->batch, work->loop, on_removed, freeing);
		else
			close_parts(freeing);
	}
}

void versions_free_unused(struct work *work, struct version *version)
{
	if (!freeing_begin(work, version))
		return;
	keeping_save(work->keeping);
}

void versions_mark_unused(struct work *work, struct version *version)
{
	freeing_begin(work, version);
}

void versions_free_all_unused(struct work *work)
{
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		freeing_begin(work, version);
	keeping_save(work->keeping);
}

/* ---- retiring ---- */

int versions_retire(struct work *work, struct version *version, struct error *error)
{
	bool before = version->state == VERSION_RETIRING, marked;
	int r = registry_retire(work->ledger->registry, version, error);

	if (r < 0)
		return r;
	marked = freeing_begin(work, version);
	if (before && !marked)
		return 0;
	keeping_save(work->keeping);
	if (!before)
		tell_retiring(work, version, NULL);
	waiters_wake(work->clients, WAIT_READY, version);
	return 0;
}

void versions_retire_all(struct work *work)
{
	struct version *version = NULL;

	registry_remove_aliases(work->ledger->registry);
	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		if (version->state != VERSION_READY ||
		    registry_retire(work->ledger->registry, version, NULL) < 0)
			continue;
		tell_retiring(work, version, NULL);
		waiters_wake(work->clients, WAIT_READY, version);
		freeing_begin(work, version);
	}
	keeping_save(work->keeping);
}
