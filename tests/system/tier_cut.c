/* Ranks that were cut from one checkpoint go to files and come back, cut again. */
#include "harness.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

SYSTEM_SUITE(tier_cut);

#define PLAN                                                                                                   \
	"layer.* split 0\n"                                                                                    \
	"matrix split 1\n"                                                                                     \
	"scalar copy\n"                                                                                        \
	"empty copy\n"

static char source[256];

static void load_cut(struct gpuwmd *d)
{
	char plan[256];

	snprintf(source, sizeof(source), "%s", checkpoint_write(d, "source", SMALL(1)));
	snprintf(plan, sizeof(plan), "%s/plan.cut", d->root);
	file_write(d, "plan.cut", PLAN, strlen(PLAN));
	CTL_IS(0, "load", "--wait", source, "m@v1", "--ranks", "2", "--cut", plan, "--device", d->device);
}

static void move(struct gpuwmd *d, bool to_files, int code)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;
	int r = 0;

	OK(to_files ? gpuwm_demote(d->admin, "m@v1", "files", jobs, &count)
		    : gpuwm_promote(d->admin, "m@v1", jobs, &count));
	cr_assert_eq(count, 2);
	for (size_t i = 0; i < count; i++) {
		int job = gpuwm_job_wait(d->admin, jobs[i], 30000);

		r = r == 0 || job == -EBADMSG ? job : r;
	}
	cr_assert_eq(r, code, "%d: %s", r, gpuwm_error()->message);
}

GPUWMD_TEST(tier_cut, ranks_come_back_from_the_checkpoint)
{
	load_cut(d);
	move(d, true, 0);
	move(d, false, 0);
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
}

static void change_checkpoint(void)
{
	FILE *file = fopen(source, "r+e");

	cr_assert(file && fseek(file, -90000, SEEK_END) == 0 && fputs("changed", file) >= 0 &&
		  fclose(file) == 0);
}

GPUWMD_TEST(tier_cut, a_checkpoint_that_changed_is_refused_before_anything_is_given_up)
{
	load_cut(d);
	change_checkpoint();
	move(d, true, -EBADMSG);
	CTL_IS(0, "verify", "m@v1", "--wait");
	SAYS("intact");
	DROP(d, "m@v1");
}

GPUWMD_TEST(tier_cut, a_checkpoint_that_changed_since_is_refused)
{
	load_cut(d);
	move(d, true, 0);
	change_checkpoint();
	move(d, false, -EBADMSG);
	DROP(d, "m@v1");
}
