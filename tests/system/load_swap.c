/* A load that moves an alias and retires what it named: all of it, or nothing. */
#include "kept.h"

#include <stdio.h>
#include <string.h>

SYSTEM_SUITE(load_swap);

#define NOTHING "00000000000000000000000000000000"

static int begin(struct gpuwmd *d, const char *name, uint64_t seed, const char *alias, const char *expect,
		 bool retire_old, uint64_t *ret_job)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *device = d->device;

	options.source = checkpoint_write(d, strchr(name, '@') + 1, SMALL(seed));
	options.name = name;
	options.devices = &device;
	options.device_count = 1;
	options.alias = alias;
	options.expect = expect;
	options.retire_old = retire_old;
	return gpuwm_load(d->admin, &options, ret_job);
}

/* The id of the version; "" where there is none. */
static void id_of(struct gpuwmd *d, const char *tag, char ret_id[33])
{
	json_t *entry = version_entry(d, "m", tag);

	snprintf(ret_id, 33, "%s", entry ? json_string_value(json_object_get(entry, "version")) : "");
	json_decref(entry);
}

GPUWMD_TEST(load_swap, moves_the_alias_and_retires_the_old_one)
{
	char v1[33];
	uint64_t job;

	OK(begin(d, "m@v1", 1, "current", NOTHING, true, &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	id_of(d, "v1", v1);
	OK(begin(d, "m@v2", 2, "current", v1, true, &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	worker_reads(d, "m", 2);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	DROP(d, "m@v2");
}

/* It is ready and has the alias; the old one stays. */
GPUWMD_TEST_BY(load_swap, says_why_the_old_one_stays, gpuwmd_start(NULL), gpuwmd_stop)
{
	char v1[33];
	uint64_t job;

	load_small(d, 1);
	id_of(d, "v1", v1);
	OK(begin(d, "m@v2", 2, "prod", NOTHING, true, &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	OK(begin(d, "m@v3", 3, "current", v1, true, &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	id_of(d, "v2", v1);
	OK(swap_to(d, "m", "v2", false));
	OK(begin(d, "m@v4", 4, "current", v1, true, &job));
	cr_assert_eq(gpuwm_job_wait(d->admin, job, -1), 1);
	cr_expect(strstr(gpuwm_error()->message, "m@v2 is named by 1 alias"), "%s", gpuwm_error()->message);
	cr_assert(version_is(d, "m", "v2", "ready"));
	worker_reads(d, "m", 4);
	worker_reads(d, "m@previous", 2);
}

GPUWMD_TEST(load_swap, refuses_at_once_what_can_not_be)
{
	char v1[33];
	uint64_t job;

	load_small(d, 1);
	id_of(d, "v1", v1);
	FAILS(EINVAL, begin(d, "m@v2", 2, NULL, v1, false, &job));
	cr_expect(strstr(gpuwm_error()->message, "are about an alias"), "%s", gpuwm_error()->message);
	FAILS(EINVAL, begin(d, "m@v2", 2, NULL, NULL, true, &job));
	FAILS(EINVAL, begin(d, "m@v2", 2, "v2", v1, true, &job));
	FAILS(EINVAL, begin(d, "m@v2", 2, "current", "v1", true, &job));
	FAILS(EBUSY, begin(d, "m@v2", 2, "current", NOTHING, true, &job));
	cr_expect(strstr(gpuwm_error()->message, "m@current names v1 (version "), "%s", gpuwm_error()->message);
	FAILS(EBUSY, begin(d, "m@v2", 2, "prod", v1, true, &job));
	cr_expect_str_eq(gpuwm_error()->message, "m@prod names nothing now");
	cr_assert(version_is(d, "m", "v2", "none"));
	DROP(d, "m@v1");
}

/* ---- gpuwmd dies ------------------------------------------------------ */

struct count {
	unsigned events, until;
};

static void count_event(const struct gpuwm_event *event, void *user_data)
{
	struct count *count = user_data;

	(void)event;
	count->events++;
}

/* Kills gpuwmd after so many events of the load of m@tag, which is to replace the version with the id `old`. True: the load
 * was through before. */
static bool killed_after(struct gpuwmd *d, const char *tag, uint64_t seed, const char *old, unsigned events)
{
	struct count count = {.until = events};
	struct gpuwm_client *watcher = client_new();
	struct gpuwm_events *stream;
	char name[64];
	uint64_t job;
	bool freed = false;

	OK(gpuwm_events_open(watcher, UINT64_MAX, &stream));
	snprintf(name, sizeof(name), "m@%s", tag);
	OK(begin(d, name, seed, "current", old, true, &job));
	while (count.events < count.until && !freed) {
		int r = gpuwm_events_dispatch(stream, 20, count_event, &count);

		cr_assert(r >= 0 || r == -ETIMEDOUT || r == -EINTR, "%s", gpuwm_error()->message);
		freed = count.events > 3 && gpuwm_job_wait(d->admin, job, 0) == 0;
	}
	gpuwm_events_close(stream);
	gpuwm_close(watcher);
	kept_kill(d, SIGKILL);
	return freed;
}

Test(load_swap, whose_gpuwmd_dies_at_any_event_is_whole_or_nothing, .timeout = 300)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(struct kept){});
	unsigned whole = 0, nothing = 0;
	char old[33], now[33], tag[16], old_tag[16] = "v0";
	bool through = false;

	load_version(d, checkpoint_write(d, "v0", SMALL(1)), "m@v0");
	for (unsigned n = 1; n < 24 && (!through || n < 4); n++) {
		id_of(d, old_tag, old);
		snprintf(tag, sizeof(tag), "v%u", n);
		through = killed_after(d, tag, n + 1, old, n);
		id_of(d, tag, now);
		if (version_is(d, "m", tag, "ready")) {
			worker_reads(d, "m", n + 1);
			cr_assert(!version_is(d, "m", old_tag, "ready"), "after %u events", n);
			snprintf(old_tag, sizeof(old_tag), "%s", tag);
			whole++;
		} else {
			cr_assert(version_is(d, "m", old_tag, "ready"), "after %u events", n);
			nothing++;
		}
	}
	cr_assert(whole > 0 && nothing > 0, "%u whole, %u nothing", whole, nothing);
	gpuwmd_stop(d);
}
