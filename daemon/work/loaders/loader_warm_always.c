/* Contexts that are made before there is a load: keep_context = always. */
#include "loader_internal.h"
#include "../../base/clock.h"

/* Whether a loader keeps a context on the device for loads, or may when its load has ended. */
static bool is_covered(const struct loader_pool *pool, const struct device *device)
{
	for (const struct loader *l = pool->first; l; l = l->next) {
		bool loads = l->state == LOADER_BUSY && warm_is_for_loads(l->job);

		if ((loads || (warm_is(l) && !l->checks)) && loader_has_context(l, device))
			return true;
	}
	return false;
}

/* Charges the loader with a context on the device, if there is room. */
static bool add_context(struct loader *l, struct device *device)
{
	struct budget_charge charge = {0};
	struct shared_charge *shared = NULL;
	struct error error;

	if (!device->kind->context_bytes || device->lost.code || is_covered(l->pool, device) ||
	    warm_is_awaited(l->pool->work, device) || budget_charge_context(device, &charge, &error) < 0)
		return false;
	shared = charge.bytes ? shared_charge_new(&charge) : NULL;
	if (!shared) {
		budget_release(&charge);
		return false;
	}
	loader_keep(l, shared);
	return true;
}

/* Contexts on all GPUs that have none and have room for one. After a failure: on one of these GPUs, another one each time, so that a
 * GPU that refuses its context keeps no other GPU from one. */
static void loader_make_contexts(struct loader_pool *pool, struct loader *l)
{
	const struct device_table *all = &pool->work->ledger->devices;
	const unsigned failures = pool->warm_failures;
	const char *devices[PARTS_PER_VERSION_MAX];
	struct warm_params params = {.devices.items = devices};
	struct message_writer w;

	for (size_t i = 0; i < all->count; i++) {
		if (add_context(l, all->devices[(failures + i) % all->count]) && failures > 0)
			break;
	}
	if (!loader_next_context(l, NULL))
		return;
	l->state = LOADER_WARMING;
	l->keeps = true;
	uv_timer_start(&l->timer, loader_on_timer, pool->work->config->loader_start_ms, 0);
	for (const struct kept *kept = NULL; (kept = loader_next_context(l, kept));)
		devices[params.devices.count++] = kept_device(kept)->id;
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_warm.name);
	record_put(&w, form_warm.params, &params);
	loader_notify(l, &w, &(struct parcel){0});
}

static void on_warm(uv_timer_t *timer)
{
	struct loader_pool *pool = timer->data;

	pool->warm_at_ms = 0;
	pool->work->turn_due = true;
}

/* Takes a loader that stands by, if nobody else needs it and another one can be started in its place. */
void warm_make_always(struct loader_pool *pool)
{
	const struct work *work = pool->work;
	struct loader *spare = loader_pool_spare(pool);
	uint64_t now = clock_steady_ms();

	if (work->draining || work->config->keep_context_s != KEEP_ALWAYS || !spare || work->jobs.queued > 0 ||
	    loader_pool_count(pool) >= work->config->loaders)
		return;
	if (now < pool->warm_at_ms)
		uv_timer_start(pool->warm, on_warm, pool->warm_at_ms - now, 0);
	else
		loader_make_contexts(pool, spare);
}

void loader_is_warm(struct loader *l, const struct error *error)
{
	struct loader_pool *pool = l->pool;

	if (l->state != LOADER_WARMING)
		return;
	if (!error) {
		warm_stay(l);
	} else {
		loader_warm_failed(l, error);
		loader_dismiss(l);
	}
	pool->work->turn_due = true;
}
