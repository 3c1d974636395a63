/* Versions on tiers, and several users. */
#include "tiers.h"
#include "user.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>

SYSTEM_SUITE(tiers_users);

#define MOVED 4

static uint64_t job_time(const json_t *job, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(job, key));
}

/* When the last move to host memory began, and when the check of the publish ended. */
static void look(struct gpuwmd *d, uint64_t *ret_moved_ms, uint64_t *ret_checked_ms)
{
	json_t *answer = query(d->admin, "jobs", NULL), *job;
	size_t i;

	*ret_moved_ms = *ret_checked_ms = 0;
	json_array_foreach(json_object_get(answer, "jobs"), i, job) {
		const bool is_move = strcmp(json_string_value(json_object_get(job, "kind")), "move") == 0;

		if (is_move && job_time(job, "started_ms") > *ret_moved_ms)
			*ret_moved_ms = job_time(job, "started_ms");
		else if (strcmp(json_string_value(json_object_get(job, "model")), "carol/m") == 0)
			*ret_checked_ms = job_time(job, "ended_ms");
	}
	json_decref(answer);
}

static struct gpuwmd *with_two_loaders(void)
{
	return gpuwmd_start("--set", "limits.loaders=2", "--set", "socket.mode=0666", "--set",
			    "model.1.match=carol/*", "--set", "model.1.publish=61003", NULL);
}

/* The first move has the only loader that users may have. */
FAKECUDA_TEST(tiers_users, one_user_who_moves_versions_does_not_keep_loaders_from_others, with_two_loaders(),
	      gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX], moved_ms, checked_ms;
	struct process carol;
	size_t count;
	char name[16];

	NEEDS_ROOT();
	for (unsigned seed = 1; seed <= MOVED; seed++) {
		snprintf(name, sizeof name, "m@v%u", seed);
		OK(publish_version(client, d->device, name, LARGE(seed)));
	}
	carol = user_start(CAROL);
	loaders_kill(d, SIGSTOP);
	for (unsigned seed = 1; seed <= MOVED; seed++) {
		snprintf(name, sizeof name, "m@v%u", seed);
		OK(gpuwm_demote(client, name, "host", jobs, &count));
	}
	cr_assert(dprintf(carol.to, "publish carol/m@v1\n") > 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_queued") == MOVED));
	loaders_kill(d, SIGCONT);
	cr_assert_eq(answer_of(&carol), 0, "%s", said);
	OK(gpuwm_job_wait(d->admin, jobs[0], LOAD_MS));
	look(d, &moved_ms, &checked_ms);
	cr_assert(checked_ms > 0 && checked_ms <= moved_ms,
		  "the check ended at %ju, the last move began at %ju", (uintmax_t)checked_ms,
		  (uintmax_t)moved_ms);
	user_end(&carol);
	gpuwm_close(client);
}
