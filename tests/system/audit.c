/* What is told of changes, and what a start says. */
#include "kept.h"

#include <gpuwm/region.h>

#include <stdio.h>

SYSTEM_SUITE(audit);

/* Whether the log has a line of gpuwmctl or of this process that ends so. */
static bool says(struct gpuwmd *d, const char *words)
{
	return EVENTUALLY(SOON_MS, log_says(d, words));
}

GPUWMD_TEST(audit, each_change_is_a_line_and_an_event)
{
	struct ctl_run events;
	char told[8192];

	load_small(d, 2);
	events = ctl_start("events", NULL);
	cr_expect(says(d, ": load m@v1 from "));
	cr_expect(says(d, ": done: job "));
	CTL_IS(0, "pin", "m@v1", "keep");
	cr_expect(says(d, "(gpuwmctl, pid "));
	cr_expect(says(d, ": pin_version m@v1, pin keep: done\n"));
	CTL_IS(0, "swap", "m", "v2");
	cr_expect(says(d, ": hot_swap m: current to v2: done: "));
	CTL_IS(0, "unpin", "m@v1", "keep");
	cr_assert_eq(publish_version(d->admin, d->device, "p@v1", SMALL(3)), 0);
	cr_expect(says(d, ": publish p@v1, "));
	FAILS(ENOENT, gpuwm_retire(d->admin, "m@v9", 0));
	cr_expect(says(d, ": retire m@v9: refused, ENOENT: "));
	cr_expect_not(log_says(d, "get_handles"), "attaching is no change");
	kill(events.pid, SIGINT);
	ctl_join(&events, told, sizeof told);
	cr_expect(strstr(told, "audit"), "%s", told);
	DROP(d, "m@v1", "m@v2", "p@v1");
}

GPUWMD_TEST(audit, a_region_is_told_when_it_is_made_and_removed)
{
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct gpuwm_region *region;

	options.name = "r";
	options.device = d->device;
	options.bytes = MB(2);
	options.chunks = 4;
	OK(gpuwm_region_create(d->admin, &options, &region));
	cr_expect(says(d, ": region_create pool r of 2.0 MiB on "));
	FAILS(EEXIST, gpuwm_region_create(d->admin, &options, &(struct gpuwm_region *){NULL}));
	cr_expect(says(d, "refused, EEXIST: there is a region \"r\""));
	OK(gpuwm_region_remove(d->admin, "r"));
	cr_expect(says(d, ": region_remove r: done\n"));
	gpuwm_region_close(region);
}

/* Lines of the log that do not begin with one time. */
static unsigned badly_dated(const struct gpuwmd *d)
{
	int year, month, day, hour, minute, second, end;
	char line[8192];
	unsigned count = 0;
	FILE *file = fopen(d->log, "re");

	cr_assert(file);
	while (fgets(line, sizeof line, file)) {
		end = 0;
		sscanf(line, "%4d-%2d-%2dT%2d:%2d:%2d.%*3dZ gpuwm%n", &year, &month, &day, &hour, &minute,
		       &second, &end);
		count += end == 0;
	}
	fclose(file);
	return count;
}

GPUWMD_TEST(audit, a_start_says_what_it_goes_by)
{
	char words[160];

	cr_expect(log_says(d, "gpuwmd: info: gpuwmd "));
	cr_expect(log_says(d, " starts, pid "));
	snprintf(words, sizeof words, "socket of workers: %s, mode ", d->socket);
	cr_expect(log_says(d, words));
	snprintf(words, sizeof words, "socket of operators: %s, mode ", d->admin_socket);
	cr_expect(log_says(d, words));
	snprintf(words, sizeof words, "device %s (", d->device);
	cr_expect(log_says(d, words));
	snprintf(words, sizeof words, "roots of models: %s\n", d->root);
	cr_expect(log_says(d, words));
	cr_expect(log_says(d, "limits: "));
	cr_expect(log_says(d, "no service manager keeps descriptors here"));
	cr_expect_eq(log_says(d, "no GPU: gpuwm-loader found no NVIDIA driver, or no GPU that it may use"),
		     backend() == BACKEND_HOST);
	cr_expect_eq(badly_dated(d), 0, "each line has its time once");
}

/* The keeper's lines are in the same log. */
GPUWMD_TEST_BY(audit, under_the_keeper_each_line_has_its_time_once, gpuwmd_start_kept(KEPT_LONG),
	       gpuwmd_stop_empty)
{
	cr_expect(log_says(d, "gpuwm-keeper: info: "));
	cr_expect(log_says(d, "kept by gpuwm-keeper, which has room for "));
	kept_kill(d, SIGKILL);
	cr_expect_eq(badly_dated(d), 0);
}
