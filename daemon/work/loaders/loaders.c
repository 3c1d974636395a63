/* The loaders that there are, and what each of them has: lists and figures, which all of the work reads. */
#include "../../../base/clock.h"
#include "../../clients/waiter.h"
#include "../../net/session.h"
#include "loader_internal.h"

#include <stdlib.h>
#include <unistd.h>

/* ---- which there are ---- */

unsigned loader_pool_in_state(const struct loader_pool *pool, enum loader_state state)
{
	unsigned count = 0;

	for (const struct loader *l = pool->first; l; l = l->next)
		count += l->state == state;
	return count;
}

uint64_t loader_pool_count(const struct loader_pool *pool)
{
	uint64_t count = 0;

	for (const struct loader *l = pool->first; l; l = l->next)
		count += l->state != LOADER_FORGOTTEN && l->state != LOADER_HOLDING;
	return count;
}

struct loader *loader_pool_spare(const struct loader_pool *pool)
{
	struct loader *l = pool->first;

	while (l && (l->state != LOADER_STANDBY || l->session->ended))
		l = l->next;
	return l;
}

bool loader_pool_standby(const struct loader_pool *pool)
{
	return loader_pool_spare(pool) != NULL;
}

bool loader_pool_may_report(const struct loader_pool *pool)
{
	return pool && (loader_pool_spare(pool) || loader_pool_in_state(pool, LOADER_STARTING) > 0);
}

uint64_t loader_pid(const struct loader *l)
{
	return (uint64_t)l->pid;
}

uint64_t loader_pool_standby_pid(const struct loader_pool *pool)
{
	const struct loader *l = loader_pool_spare(pool);

	return l ? loader_pid(l) : 0;
}

const struct error *loader_pool_failure(const struct loader_pool *pool)
{
	return pool->failures > 0 ? &pool->failure : NULL;
}

struct loader *loader_of(const struct loader_pool *pool, const void *job)
{
	struct loader *l = pool ? pool->first : NULL;

	while (l && (!l->job || l->job != job))
		l = l->next;
	return l;
}

void loader_pool_keep(struct loader_pool *pool, const struct version_id *version, uint32_t replica,
		      struct shared_charge *shared)
{
	for (struct loader *l = pool ? pool->first : NULL; l; l = l->next) {
		if (version_id_equal(&l->reads, version) &&
		    (l->reads_replica == replica || l->reads_replica == READS_EVERY_REPLICA))
			loader_keep(l, shared_charge_use(shared));
	}
}

/* ---- contexts ---- */

bool loader_waits_for_room(const struct loader *l)
{
	const struct waiter *w = l->pool->work->clients->waiters[WAIT_ROOM];

	while (w && w->request.session != l->session)
		w = w->next;
	return w != NULL;
}

uint64_t loader_pool_passing(const struct loader_pool *pool, const struct device *device,
			     const struct loader *but)
{
	uint64_t bytes = 0;

	for (const struct loader *l = pool ? pool->first : NULL; l; l = l->next) {
		if (l == but || l->state == LOADER_FORGOTTEN || loader_waits_for_room(l))
			continue;
		for (const struct kept *kept = l->kept; kept; kept = kept->next) {
			const struct budget_charge *charge = &kept->shared->charge;

			bytes += charge->context && charge->device == device ? charge->bytes : 0;
		}
	}
	return bytes;
}

/* The next charge for a context, after this one (NULL: of all). */
const struct kept *loader_next_context(const struct loader *l, const struct kept *after)
{
	const struct kept *kept = after ? after->next : l->kept;

	while (kept && !kept->shared->charge.context)
		kept = kept->next;
	return kept;
}

bool loader_has_context(const struct loader *l, const struct device *device)
{
	const struct kept *kept = NULL;

	while ((kept = loader_next_context(l, kept))) {
		if (kept->shared->charge.device == device)
			return true;
	}
	return false;
}

/* ---- one of them ---- */

void loader_notify(struct loader *l, struct message_writer *w, const struct parcel *with)
{
	struct parcel parcel = *with;

	message_end(w);
	if (message_finish(w) == 0) {
		parcel.data = w->buffer.data;
		parcel.bytes = w->buffer.size;
		session_send(l->session, &parcel);
	} else {
		parcel_close_fds(&parcel);
		session_end(l->session);
	}
	message_writer_clear(w);
}

void loader_keep(struct loader *l, struct shared_charge *shared)
{
	struct kept *kept = malloc(sizeof(*kept));

	if (!kept) /* stays charged rather than given out twice */
		return;
	*kept = (struct kept){.shared = shared, .next = l->kept};
	l->kept = kept;
}

/* ---- contexts that are kept ---- */

/* A context that is made again at once would only be in the way again. */
void loader_pool_warm_later(struct loader_pool *pool)
{
	pool->warm_at_ms = clock_steady_ms() + KEEP_AGAIN_MS;
}

void loader_warm_failed(struct loader *l, const struct error *error)
{
	const bool stopping = l->pool->work->net->stopping;

	if (l->checks) { /* it was idle, and had nothing that anybody waits for */
		if (!stopping)
			log_info("gpuwm-loader (pid %d), idle after checks of user %u, is gone: %s", l->pid,
				 (unsigned)l->uid, error->message);
		return;
	}
	loader_pool_warm_later(l->pool);
	if (stopping || l->pool->warm_failures++ > 0)
		return;
	log_warning("no CUDA context is kept by gpuwm-loader (pid %d): %s%s%s", l->pid, error->message,
		    error->detail[0] ? ": " : "", error->detail);
}
