/* The main job: load once, serve to many, swap, roll back, free. */
#include "harness.h"

#include <stdio.h>
#include <string.h>

SYSTEM_SUITE(main_job);

#define WORKERS 8

GPUWMD_TEST(main_job, eight_processes_read_what_was_loaded_once)
{
	const struct checkpoint *c = LARGE(1);
	struct process workers[WORKERS];
	uint64_t held;

	load_version(d, checkpoint_write(d, "v1", c), "m@v1");
	held = memory_of(d);
	cr_assert(held >= checkpoint_bytes(c) && held < checkpoint_bytes(c) + MB(8), "%ju bytes held", held);
	for (int i = 0; i < WORKERS; i++)
		workers[i] = worker_start(d, "m@v1", 1);
	cr_assert_eq(status_of(d, "leases"), WORKERS);
	cr_assert_eq(memory_of(d), held);
	for (int i = 0; i < WORKERS; i++) {
		process_tell(&workers[i], i % 2 ? 'd' : 'e');
		process_finish(&workers[i]);
	}
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(main_job, the_first_version_becomes_current, gpuwmd_start(NULL), gpuwmd_stop)
{
	load_small(d, 2);
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(main_job, a_swap_gives_new_workers_the_new_version_and_leaves_old_ones_theirs,
	       gpuwmd_start(NULL), gpuwmd_stop)
{
	struct process old, new;

	load_small(d, 2);
	old = worker_start(d, "m", 1);
	OK(swap_to(d, "m", "v2", false));
	new = worker_start(d, "m", 2);
	process_tell(&old, 'd');
	process_tell(&new, 'd');
	process_finish(&old);
	process_finish(&new);
}

GPUWMD_TEST(main_job, a_retired_version_is_freed_when_its_last_worker_leaves)
{
	struct process first, second;
	uint64_t one, both;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	one = memory_of(d);
	load_version(d, checkpoint_write(d, "v2", LARGE(2)), "m@v2");
	both = memory_of(d);
	first = worker_start(d, "m", 1);
	second = worker_start(d, "m", 1);
	OK(swap_to(d, "m", "v2", true));
	cr_assert(version_is(d, "m", "v1", "retiring"));
	process_tell(&first, 'd');
	process_finish(&first);
	cr_assert(version_is(d, "m", "v1", "retiring"));
	cr_assert_eq(memory_of(d), both);
	process_tell(&second, 'd');
	process_finish(&second);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == one && version_is(d, "m", "v1", "none")),
		  "%ju bytes instead of %ju", memory_of(d), one);
	DROP(d, "m@v2");
}

GPUWMD_TEST_BY(main_job, previous_is_the_way_back, gpuwmd_start(NULL), gpuwmd_stop)
{
	load_small(d, 2);
	OK(swap_to(d, "m", "v2", false));
	OK(swap_to(d, "m", "previous", false));
	worker_reads(d, "m", 1);
	worker_reads(d, "m@previous", 2);
}

GPUWMD_TEST_BY(main_job, a_swap_to_what_is_not_there_changes_nothing, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	load_small(d, 2);
	FAILS(ENOENT, swap_to(d, "m", "v3", true));
	FAILS(ENOENT, swap_to(d, "other", "v1", true));
	options.model = "m";
	options.to = "v2";
	options.expect = "00112233445566778899aabbccddeeff";
	FAILS(EBUSY, gpuwm_swap(d->admin, &options, NULL));
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(main_job, expect_moves_the_alias_only_from_that_version, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	json_t *entry;
	char old[33];

	load_small(d, 2);
	entry = version_entry(d, "m", "v1");
	options.model = "m";
	options.to = "v2";
	options.expect = json_string_value(json_object_get(entry, "version"));
	OK(gpuwm_swap(d->admin, &options, old));
	cr_assert_str_eq(old, options.expect);
	FAILS(EBUSY, gpuwm_swap(d->admin, &options, old));
	json_decref(entry);
}

GPUWMD_TEST(main_job, a_pin_holds_a_retired_version_and_unpinning_frees_it)
{
	load_small(d, 2);
	OK(gpuwm_pin(d->admin, "m@v1", "night"));
	FAILS(EEXIST, gpuwm_pin(d->admin, "m@v1", "night"));
	OK(swap_to(d, "m", "v2", true));
	FAILS(ETIMEDOUT, gpuwm_retire(d->admin, "m@v1", 50));
	cr_assert(version_is(d, "m", "v1", "retiring"));
	FAILS(ENOENT, gpuwm_unpin(d->admin, "m@v1", "day"));
	OK(gpuwm_unpin(d->admin, "m@v1", "night"));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	DROP(d, "m@v2");
}

GPUWMD_TEST(main_job, what_an_alias_names_cannot_be_retired)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	load_small(d, 1);
	FAILS(EBUSY, gpuwm_retire(d->admin, "m@v1", 0));
	options.model = "m";
	options.alias = "prod";
	options.to = "v1";
	OK(gpuwm_swap(d->admin, &options, NULL));
	options.alias = NULL;
	options.to = NULL;
	OK(gpuwm_swap(d->admin, &options, NULL));
	FAILS(EBUSY, gpuwm_retire(d->admin, "m@v1", 0));
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(main_job, an_old_version_that_another_alias_names_is_not_retired_and_stays_previous,
	       gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char old[33];

	load_small(d, 2);
	options.model = "m";
	options.alias = "prod";
	options.to = "v1";
	cr_assert_eq(gpuwm_swap(d->admin, &options, NULL), 0);
	options.alias = NULL;
	options.to = "v2";
	options.retire_old = true;
	cr_assert_eq(gpuwm_swap(d->admin, &options, old), 1);
	cr_assert_str_eq(gpuwm_error()->name, "EBUSY");
	cr_assert(strstr(gpuwm_error()->message, "m@v1 is named by 1 alias"), "%s", gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, "prod"), "%s", gpuwm_error()->detail);
	cr_assert(version_is(d, "m", "v1", "ready"));
	OK(swap_to(d, "m", "previous", false));
	/* The last alias goes, and only `previous` is left: now it is retired. */
	OK(swap_to(d, "m", "v2", false));
	options.alias = "prod";
	cr_assert_eq(gpuwm_swap(d->admin, &options, NULL), 0);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	FAILS(ENOENT, swap_to(d, "m", "previous", false));
}

GPUWMD_TEST_BY(main_job, a_retiring_version_gives_no_new_leases, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct process worker;

	load_small(d, 2);
	worker = worker_start(d, "m@v1", 1);
	OK(swap_to(d, "m", "v2", true));
	FAILS(ENOENT, gpuwm_attach(client, "m@v1", NULL, &mapping));
	process_tell(&worker, 'd');
	process_finish(&worker);
	gpuwm_close(client);
}

GPUWMD_TEST_BY(main_job, a_model_may_carry_small_files_and_metadata, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	char folder[128];
	uint32_t bytes = 0;

	checkpoint_write(d, "m/model", SMALL(1));
	file_write(d, "m/config.json", "{\"layers\": 6}", 13);
	snprintf(folder, sizeof folder, "%s/m", d->root);
	load_version(d, folder, "m@v1");
	if (backend() == BACKEND_HOST) {
		OK(gpuwm_attach(client, "m", NULL, &mapping));
		cr_assert(mapping_holds(mapping, 1));
		cr_assert_str_eq(gpuwm_metadata(mapping, "format"), "test");
		cr_assert(gpuwm_file(mapping, "config.json", &bytes));
		cr_assert_eq(bytes, 13);
		OK(gpuwm_detach(mapping));
	}
	gpuwm_close(client);
}
