/* Loaders that hold copies by legacy CUDA IPC (work/jobs/copies.h). */
#include "loader_internal.h"

void loader_holds(struct loader *l, struct ipc_copy *copy)
{
	for (struct kept *kept = l->kept; kept; kept = kept->next)
		budget_keep_context(&kept->shared->charge);
	loader_keep(l, shared_charge_use(copy->charge));
	l->job = NULL;
	l->reads = (struct version_id){0}; /* it has unmapped the version */
	l->copy = copy;
	copy->pid = (uint64_t)l->pid;
	l->state = LOADER_HOLDING;
	uv_timer_stop(&l->timer);
}

static struct loader *holder_of(const struct loader_pool *pool, const struct ipc_copy *copy)
{
	struct loader *l = pool ? pool->first : NULL;

	while (l && l->copy != copy)
		l = l->next;
	return l;
}

void loader_let_go(struct loader_pool *pool, const struct ipc_copy *copy)
{
	struct loader *l = holder_of(pool, copy);

	if (!l)
		return;
	l->copy = NULL;
	loader_dismiss(l);
}

void loader_fail_copy(struct loader_pool *pool, const struct ipc_copy *copy, const struct error *error)
{
	struct loader *l = holder_of(pool, copy);

	if (l)
		loader_kill(l, error);
}
