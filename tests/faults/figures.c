#include "figures.h"

#include "registry.h"

#include <stdio.h>

static const struct {
	const char *name;
	const char *key; /* in `status`; NULL: it is elsewhere */
	int idle; /* -1: not known */
} rows[FIGURE_COUNT] = {
	[FIGURE_LEASES] = {"leases", "leases", 0},
	[FIGURE_PUBLISHES] = {"publishes", "publishes", 0},
	[FIGURE_WAITING] = {"waiting requests", "waiting", 0},
	[FIGURE_SESSIONS] = {"sessions", "sessions", 1},
	[FIGURE_JOBS] = {"jobs that run", "jobs_running", 0},
	[FIGURE_STANDBY] = {"standby loaders", "standby", 1},
	[FIGURE_LOADERS] = {"loaders", "loaders", 1},
	[FIGURE_KEEPER_CHILDREN] = {"children of the keeper", NULL, 1},
	[FIGURE_GPUWMD_CHILDREN] = {"children of gpuwmd", NULL, 1},
	[FIGURE_KEEPER_FDS] = {"descriptors of the keeper", NULL, -1},
	[FIGURE_GPUWMD_FDS] = {"descriptors of gpuwmd", NULL, -1},
	[FIGURE_FILES] = {"files", NULL, -1},
};

bool figures_take(struct figures *ret, const struct stack *s)
{
	struct gpuwm_client *client;
	json_t *status, *list;
	size_t held;
	pid_t gpuwmd;

	if (stack_operator(s, &client) < 0)
		return false;
	status = ask(client, "status");
	list = ask(client, "list");
	held = fds_held(list);
	gpuwmd = (pid_t)number_of(status, "pid");
	for (int i = 0; i < FIGURE_COUNT; i++)
		ret->of[i] = rows[i].key ? number_of(status, rows[i].key) : 0;
	ret->of[FIGURE_KEEPER_CHILDREN] = process_children(s->keeper);
	ret->of[FIGURE_GPUWMD_CHILDREN] = process_children(gpuwmd);
	ret->of[FIGURE_KEEPER_FDS] = process_fds(s->keeper) - held;
	ret->of[FIGURE_GPUWMD_FDS] = process_fds(gpuwmd) - held;
	ret->of[FIGURE_FILES] = stack_files(s);
	gpuwm_close(client);
	json_decref(list);
	json_decref(status);
	return gpuwmd > 0;
}

bool figures_idle(const struct figures *figures)
{
	for (int i = 0; i < FIGURE_COUNT; i++) {
		if (rows[i].idle >= 0 && figures->of[i] != (uint64_t)rows[i].idle)
			return false;
	}
	return true;
}

bool figures_equal(const struct figures *figures, const struct figures *base, char *ret_why, size_t size)
{
	size_t used = 0;

	for (int i = 0; i < FIGURE_COUNT && used < size; i++) {
		if (figures->of[i] != base->of[i])
			used += (size_t)snprintf(ret_why + used, size - used, "%s%ju %s instead of %ju",
						 used > 0 ? ", " : "", figures->of[i], rows[i].name,
						 base->of[i]);
	}
	return used == 0;
}
