/* Versions that are described on disk outlive all processes and all memory. */
#include "described.h"
#include "storm.h"

#include "tests/support/any/own_folder.h"
#include "base/limits.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

STORM_SUITE(descriptions);

#define DESCRIBED_TEST(name, ...)                                                                              \
	GPUWMD_TEST_BY(descriptions, name, described_start(__VA_ARGS__ __VA_OPT__(, ) NULL), described_stop)

/* ---- what comes back --------------------------------------------------- */

/* What `list` says of a version besides times and what is counted. */
static char *version_text(struct gpuwmd *d, const char *tag)
{
	static const char *const keys[] = {"version", "model", "tag",     "state",  "created_ms", "ready_ms",
					   "world",   "bytes", "tensors", "layout", "content",    "owner_uid",
					   "pins",    "parts", "source",  "tier",   "described",  "error"};
	json_t *entry = version_entry(d, "m", tag), *few = json_object();
	char *text;

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		json_object_set(few, keys[i], json_object_get(entry, keys[i]));
	text = json_dumps(few, JSON_COMPACT | JSON_SORT_KEYS);
	json_decref(entry);
	json_decref(few);
	return text;
}

static char *aliases_text(struct gpuwmd *d)
{
	json_t *list = query(d->admin, "list", NULL);
	char *text = json_dumps(json_object_get(list, "aliases"), JSON_COMPACT | JSON_SORT_KEYS);

	json_decref(list);
	return text;
}

static void expect_text(char *before, char *after)
{
	cr_assert_str_eq(before, after);
	free(before);
	free(after);
}

static void make_scene(struct gpuwmd *d)
{
	load_scene(d);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1") && is_described(d, "v2")));
}

static void expect_scene_after(struct gpuwmd *d, int signal_number)
{
	char *v1 = version_text(d, "v1"), *v2 = version_text(d, "v2"), *aliases = aliases_text(d);

	described_reboot(d, signal_number);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	cr_assert_eq(tiers_number(d, "found"), 2);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == 2));
	expect_text(v1, version_text(d, "v1"));
	expect_text(v2, version_text(d, "v2"));
	expect_text(aliases, aliases_text(d));
	worker_reads(d, "m", 1);
	worker_reads(d, "m@prod", 2);
	cr_assert(log_says(d, "versions that were resident before: 2; they are back: 2, they are not: 0"));
}

DESCRIBED_TEST(versions_aliases_and_pins_come_back_after_a_stop)
{
	make_scene(d);
	expect_scene_after(d, SIGTERM);
	expect_scene_after(d, SIGTERM);
}

DESCRIBED_TEST(versions_aliases_and_pins_come_back_after_a_power_cut)
{
	make_scene(d);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 2));
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	worker_reads(d, "m", 1);
}

DESCRIBED_TEST(without_restore_a_version_comes_back_when_somebody_attaches, "--set", "tiers.restore=no")
{
	load_small(d, 2);
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1") && is_described(d, "v2")));
	described_reboot(d, SIGKILL);
	cr_assert(lies_on(d, "v1", "files") && lies_on(d, "v2", "files"));
	cr_assert(is_described(d, "v1"));
	cr_assert_eq(tiers_number(d, "to_restore"), 0);
	attach_reads("m", 1);
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "files"));
}

/* ---- what does not ----------------------------------------------------- */

static void flip_byte(const char *path, off_t at)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	char byte;

	cr_assert(fd >= 0 && pread(fd, &byte, 1, at) == 1);
	byte ^= 1;
	cr_assert(pwrite(fd, &byte, 1, at) == 1 && close(fd) == 0);
}

DESCRIBED_TEST(a_damaged_description_is_named_and_the_others_come_back)
{
	char path[256];

	describe_small(d, 3);
	snprintf(path, sizeof path, "%s", described_file(d, "v1"));
	flip_byte(path, 100);
	cr_assert_eq(truncate(described_file(d, "v2"), 40), 0);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v3", "device")));
	cr_assert_eq(tiers_number(d, "found"), 1);
	cr_assert(version_is(d, "m", "v1", "none") && version_is(d, "m", "v2", "none"));
	cr_assert(log_says(d, "is damaged: its digest is another one"));
	cr_assert(log_says(d, "has 40 bytes, a header has 64"));
	strcat(path, ".wrong");
	cr_assert_eq(access(path, F_OK), 0);
	attach_reads("m@v3", 3);
}

DESCRIBED_TEST(without_its_names_every_version_comes_back)
{
	describe_small(d, 2);
	OK(gpuwm_pin(d->admin, "m@v2", "night"));
	flip_byte(described_path(d, "names"), 70);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	cr_assert(log_says(d, "names is damaged"));
	attach_reads("m@v2", 2);
}

DESCRIBED_TEST(names_that_are_gone_take_no_version_with_them)
{
	describe_small(d, 2);
	cr_assert_eq(unlink(described_path(d, "names")), 0);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	cr_assert(log_says(d, "names is not there"));
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v1") && is_described(d, "v2")));
}

DESCRIBED_TEST(a_version_whose_files_are_gone_stays_described_with_its_error)
{
	char path[256];
	json_t *entry;

	describe_small(d, 2);
	snprintf(path, sizeof path, "%s/v1.safetensors", d->root);
	cr_assert_eq(unlink(path), 0);
	described_reboot(d, SIGKILL);
	cr_assert(
		EVENTUALLY(SOON_MS, tiers_number(d, "not_restored") == 1 && tiers_number(d, "restored") == 1));
	entry = version_entry(d, "m", "v1");
	cr_assert(entry && json_object_get(entry, "promotion_error"));
	json_decref(entry);
	cr_assert(lies_on(d, "v1", "files") && is_described(d, "v1"));
	cr_assert(log_says(d, "m@v1 is not restored, and stays on files"));
}

DESCRIBED_TEST(a_retired_version_is_described_no_more)
{
	char path[256];

	describe_small(d, 2);
	snprintf(path, sizeof path, "%s", described_file(d, "v1"));
	version_drop(d, "m", "v1");
	cr_assert(EVENTUALLY(SOON_MS, access(path, F_OK) < 0 && tiers_number(d, "described") == 1));
	described_reboot(d, SIGKILL);
	cr_assert_eq(tiers_number(d, "found"), 1);
	cr_assert(version_is(d, "m", "v1", "none"));
}

DESCRIBED_TEST(a_published_version_that_was_not_saved_is_not_described)
{
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(SOON_MS, is_described(d, "v2")));
	cr_assert(!is_described(d, "v1"));
	described_reboot(d, SIGTERM);
	cr_assert(version_is(d, "m", "v1", "none"));
	cr_assert_eq(tiers_number(d, "found"), 1);
}

/* ---- drains ------------------------------------------------------------- */

DESCRIBED_TEST(a_drain_deletes_descriptions_and_says_so_before)
{
	load_small(d, 1);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 1));
	CTL_IS(2, "drain");
	SAYS("it deletes 1 description in ");
	SAYS("no restart or reboot brings these versions back; --keep-descriptions keeps them\n");
	CTL_IS(0, "drain", "--yes");
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == 0));
}

DESCRIBED_TEST(a_drain_may_keep_descriptions_for_the_next_start)
{
	char *aliases;

	make_scene(d);
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
	aliases = aliases_text(d);
	CTL_IS(0, "unpin", "m@v2", "night");
	cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
	CTL_IS(0, "drain", "--keep-descriptions", "--yes");
	SAYS("it keeps 2 descriptions in ");
	SAYS("drained: 2 versions are freed; no version is left\n");
	SAYS("descriptions kept: 2; the next start of gpuwmd brings these versions back\n");
	OK(gpuwm_reload(d->admin));
	described_reboot(d, SIGTERM);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	expect_text(aliases, aliases_text(d));
}

/* ---- kills -------------------------------------------------------------- */

/* While it reads the folder, stores, promotes: whenever it comes. */
DESCRIBED_TEST(after_kills_at_any_time_of_a_restore_everything_is_back)
{
	struct storm storm;

	storm_begin(&storm, "descriptions", "GPUWM_STORM_KILLS", 12);
	describe_small(d, 4);
	described_end(d, SIGKILL);
	for (uint64_t i = 0; i < storm.length; i++) {
		described_spawn(d);
		pause_us(dice_throw(&storm.dice, 120000));
		cr_assert(kill(d->pid, SIGKILL) == 0 && waitpid(d->pid, NULL, 0) == d->pid);
	}
	described_spawn(d);
	gpuwmd_wait(d);
	for (unsigned seed = 1; seed <= 4; seed++) {
		char ref[16];

		snprintf(ref, sizeof ref, "m@v%u", seed);
		cr_assert(EVENTUALLY(SOON_MS, lies_on(d, ref + 2, "device")));
		attach_reads(ref, seed);
	}
	cr_assert_eq(tiers_number(d, "restored"), 4);
	cr_assert(!log_says(d, ".wrong"));
	storm_passed();
}

/* Each round loads a version and retires one. What the names list is whole; the newest may be missing. */
DESCRIBED_TEST(after_kills_at_any_time_of_writing_what_is_described_is_whole)
{
	struct storm storm;

	storm_begin(&storm, "descriptions", "GPUWM_STORM_KILLS", 8);
	describe_small(d, 1);
	for (unsigned i = 0; i < storm.length; i++) {
		char name[16];
		uint64_t job;

		snprintf(name, sizeof name, "m@w%u", i);
		OK(load_start(d, checkpoint_write(d, "w", SMALL(7)), name, NULL, &job));
		pause_us(dice_throw(&storm.dice, 200000));
		described_reboot(d, SIGKILL);
		cr_assert(!version_is(d, "m", "v1", "none"));
		cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "restored") == tiers_number(d, "to_restore")));
		if (!version_is(d, "m", name + 2, "none")) {
			attach_reads(name, 7);
			version_drop(d, "m", name + 2);
		}
	}
	cr_assert(!log_says(d, ".wrong"));
	attach_reads("m@v1", 1);
	storm_passed();
}

/* ---- with an fd store --------------------------------------------------- */

static const char *kept_limits(void)
{
	static char limits[128];

	snprintf(limits, sizeof limits, "grace_ms = 300\n[tiers]\nfolder = %s/described\n", own_folder());
	return limits;
}

/* The keeper has the memory: nothing comes from files. After the keeper's death there are the files. */
Test(descriptions, the_state_wins_and_the_folder_is_there_when_the_store_is_gone)
{
	const struct kept how = {.limits = kept_limits()};
	struct gpuwmd *d = gpuwmd_start_kept(&how);

	describe_small(d, 2);
	kept_kill(d, SIGKILL);
	cr_assert(lies_on(d, "v1", "device") && lies_on(d, "v2", "device"));
	cr_assert_eq(tiers_number(d, "found"), 0);
	cr_assert(is_described(d, "v1") && is_described(d, "v2"));
	keeper_restart(d, &how);
	kept_wait(d);
	cr_assert(EVENTUALLY(SOON_MS, lies_on(d, "v1", "device") && lies_on(d, "v2", "device")));
	cr_assert_eq(tiers_number(d, "found"), 2);
	/* What came from files is kept by the store again. */
	kept_kill(d, SIGKILL);
	cr_assert(lies_on(d, "v1", "device"));
	attach_reads("m@v2", 2);
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

Test(descriptions, kills_in_a_restore_lose_nothing_with_a_store)
{
	const struct kept how = {.limits = kept_limits()};
	struct gpuwmd *d = gpuwmd_start_kept(&how);
	const unsigned kills = kills_wanted(6);

	describe_small(d, 4);
	keeper_restart(d, &how);
	for (unsigned i = 0; i < kills; i++) {
		kept_wait(d);
		kill(d->pid, SIGKILL);
	}
	kept_wait(d);
	for (unsigned seed = 1; seed <= 4; seed++) {
		char ref[16];

		snprintf(ref, sizeof ref, "m@v%u", seed);
		cr_assert(EVENTUALLY(SOON_MS, lies_on(d, ref + 2, "device")), "%s", ref);
		attach_reads(ref, seed);
	}
	DROP(d, "m@v1", "m@v2", "m@v3", "m@v4");
	gpuwmd_stop_empty(d);
}

/* ---- devices of another size -------------------------------------------- */

static struct gpuwmd *start_with_4g(void)
{
	setenv("FAKECUDA_MEMORY", "4G", 1);
	return described_start("--set", "tiers.restore=no", NULL);
}

static void stop_and_forget_memory(struct gpuwmd *d)
{
	unsetenv("FAKECUDA_MEMORY");
	described_stop(d);
}

FAKECUDA_TEST(descriptions, a_budget_follows_the_size_that_a_device_has_now, start_with_4g(),
	      stop_and_forget_memory)
{
	describe_small(d, 1);
	cr_assert_eq(device_number(d, "budget"), GIB(4) / 100 * 90 + GIB(4) % 100 * 90 / 100);
	setenv("FAKECUDA_MEMORY", "1G", 1);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "total") == GIB(1)));
	cr_expect_eq(device_number(d, "budget"), GIB(1) / 100 * 90 + GIB(1) % 100 * 90 / 100);
	setenv("FAKECUDA_MEMORY", "8G", 1);
	described_reboot(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, device_number(d, "total") == GIB(8)));
	cr_expect_eq(device_number(d, "budget"), GIB(8) / 100 * 90 + GIB(8) % 100 * 90 / 100);
	attach_reads("m@v1", 1);
}
