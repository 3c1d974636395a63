/* Workers that move to another version where they are (gpuwm_switch). */
#include "harness.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

SYSTEM_SUITE(switch);

#define PARALLEL 8
#define SWAPS 100

/* Which of both the mapping is of, by its bytes: all of one. 0: neither. */
static uint64_t seed_of(const struct gpuwm_mapping *mapping)
{
	for (uint64_t seed = 1; seed <= 2; seed++)
		if (mapping_holds(mapping, seed))
			return seed;
	return 0;
}

/* The first byte of each tensor, before and after. */
static void places(const struct gpuwm_mapping *mapping, const void *ret_data[32])
{
	struct gpuwm_tensor tensor;

	for (uint64_t i = 0; i < 32 && gpuwm_tensor_at(mapping, i, &tensor) == 0; i++)
		ret_data[i] = tensor.data;
}

/* A page of a file that test and workers share. */
struct board {
	atomic_uint attached, replies, switches;
	atomic_bool stop;
};

static struct board *board_open(const char *path)
{
	FILE *file = fopen(path, "a+e");
	struct board *board = MAP_FAILED;

	if (file && ftruncate(fileno(file), sizeof *board) == 0)
		board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(file), 0);
	if (file)
		fclose(file);
	return board == MAP_FAILED ? NULL : board;
}

/* argv: the board. Serves: each reply is made of all bytes, and between two it is at a quiet
 * point, where it goes to wherever `m` points. Its pointers are those of the beginning. */
static int worker_serves(int argc, char **argv)
{
	const void *before[32] = {0}, *after[32] = {0};
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	struct board *board;

	CHILD_ASSERT(argc == 1 && (board = board_open(argv[0])));
	child_keeps_context();
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	places(mapping, before);
	board->attached++;
	while (!board->stop) {
		const char *tag = gpuwm_mapping_version(mapping)->tag;
		uint64_t generation = gpuwm_mapping_version(mapping)->generation;

		CHILD_ASSERT(seed_of(mapping) == (uint64_t)(tag[1] - '0'));
		places(mapping, after);
		CHILD_ASSERT(memcmp(before, after, sizeof before) == 0);
		board->replies++;
		CHILD_ASSERT(gpuwm_switch(mapping, "m", NULL) == 0);
		board->switches += gpuwm_mapping_version(mapping)->generation != generation;
	}
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

Test(switch, workers_under_100_swaps_move_in_place_and_read_one_version_or_the_other, .timeout = 300)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct process workers[PARALLEL];
	struct board *board;
	char path[96];
	uint64_t one;

	load_small(d, 1);
	one = memory_of(d);
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	snprintf(path, sizeof path, "%s/board", d->dir);
	board = board_open(path);
	cr_assert(board);
	for (int i = 0; i < PARALLEL; i++)
		workers[i] = process_start(worker_serves, path, NULL);
	cr_assert(EVENTUALLY(30000, board->attached == PARALLEL));
	for (int i = 0; i < SWAPS; i++) {
		unsigned replies = board->replies, switches = board->switches;

		OK(swap_to(d, "m", i % 2 ? "v1" : "v2", false));
		cr_assert(
			EVENTUALLY(30000, board->replies >= replies + PARALLEL && board->switches > switches));
	}
	OK(swap_to(d, "m", "v2", true));
	/* Whoever has moved holds nothing of the old one. */
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none") && memory_of(d) == one));
	board->stop = true;
	for (int i = 0; i < PARALLEL; i++)
		process_finish(&workers[i]);
	munmap(board, sizeof *board);
	DROP(d, "m@v2");
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST(switch, another_layout_is_refused_and_the_worker_reads_on)
{
	const struct checkpoint other = {.seed = 2, .count = 6, .bytes = KB(128)};
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_small(d, 1);
	load_version(d, checkpoint_write(d, "v2", &other), "m@v2");
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	FAILS(EXDEV, gpuwm_switch(mapping, "m@v2", NULL));
	cr_assert(strstr(gpuwm_error()->message, "tensor layer.000.weight is F32 ["), "%s",
		  gpuwm_error()->message);
	cr_assert(mapping_holds(mapping, 1));
	cr_assert_eq(status_of(d, "leases"), 1);
	FAILS(ENOENT, gpuwm_switch(mapping, "m@v3", NULL));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
	OK(gpuwm_retire(d->admin, "m@v2", SOON_MS));
}

GPUWMD_TEST(switch, a_published_version_lies_where_the_loaded_one_was)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_small(d, 1);
	OK(publish_version(client, d->device, "m@v2", SMALL(2)));
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	OK(gpuwm_switch(mapping, "m@v2", NULL));
	cr_assert(mapping_holds(mapping, 2));
	DROP(d, "m@v1");
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	OK(gpuwm_retire(d->admin, "m@v2", SOON_MS));
}

/* Moves m@current, or removes it (to NULL). */
static void move_current(struct gpuwmd *d, const char *to)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	options.to = to;
	OK(gpuwm_swap(d->admin, &options, NULL));
}

GPUWMD_TEST(switch, a_worker_keeps_its_version_without_its_alias_and_follows_when_that_returns)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	load_small(d, 2);
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	move_current(d, NULL);
	FAILS(ENOENT, gpuwm_switch(mapping, "m", NULL));
	OK(gpuwm_mapping_check(mapping));
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	FAILS(ENOENT, gpuwm_switch(mapping, "m", NULL));
	cr_assert(version_is(d, "m", "v1", "retiring"), "its worker has it");
	cr_assert(mapping_holds(mapping, 1));
	move_current(d, "v2");
	OK(gpuwm_switch(mapping, "m", NULL));
	cr_assert(mapping_holds(mapping, 2));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v2");
}

/* The worker's next line, and where its mapping begins. */
static void worker_at(FILE *worker, char ret_version[64], char ret_address[64])
{
	char line[600] = "";

	cr_assert(fgets(line, sizeof line, worker) &&
			  sscanf(line, "version %63[^,], %*u bytes at %63s", ret_version, ret_address) == 2,
		  "%s", line);
	cr_assert(fgets(line, sizeof line, worker) && strstr(line, "layer.000.weight: "), "%s", line);
}

GPUWMD_TEST(switch, the_example_worker_follows_in_place)
{
	char command[600], versions[2][64], addresses[2][64];
	FILE *worker;
	int pid;

	load_small(d, 2);
	snprintf(command, sizeof command, "echo $$; exec %s/bin/example-worker m layer.000.weight",
		 build_path());
	worker = popen(command, "re");
	cr_assert(worker && fscanf(worker, "%d ", &pid) == 1);
	worker_at(worker, versions[0], addresses[0]);
	OK(swap_to(d, "m", "v2", true));
	worker_at(worker, versions[1], addresses[1]);
	cr_assert_str_neq(versions[0], versions[1]);
	cr_assert_str_eq(addresses[0], addresses[1]);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	kill(pid, SIGTERM);
	pclose(worker);
	DROP(d, "m@v2");
}

/* The worker's next line says that it keeps this version. */
static void worker_keeps(FILE *worker, const char *version)
{
	char line[600] = "", kept[64];

	cr_assert(fgets(line, sizeof line, worker) && sscanf(line, "keeps version %63[^:]:", kept) == 1, "%s",
		  line);
	cr_assert_str_eq(kept, version);
}

/* The last version has another layout: it is attached to anew, as soon as there is an alias. */
GPUWMD_TEST_BY(switch, the_example_worker_goes_on_without_its_alias_and_follows_when_that_returns,
	       gpuwmd_start(NULL), gpuwmd_stop)
{
	const struct checkpoint other = {.seed = 3, .count = 6, .bytes = KB(128)};
	char command[600], version[64], next[64], address[64], line[600];
	FILE *worker;
	int pid;

	load_small(d, 2);
	load_version(d, checkpoint_write(d, "v3", &other), "m@v3");
	snprintf(command, sizeof command, "echo $$; exec %s/bin/example-worker m layer.000.weight",
		 build_path());
	worker = popen(command, "re");
	cr_assert(worker && fscanf(worker, "%d ", &pid) == 1);
	worker_at(worker, version, address);
	move_current(d, NULL);
	worker_keeps(worker, version);
	cr_assert_eq(status_of(d, "leases"), 1);
	move_current(d, "v2");
	worker_at(worker, next, address);
	cr_assert_str_neq(version, next);
	move_current(d, NULL);
	worker_keeps(worker, next);
	move_current(d, "v3");
	cr_assert(fgets(line, sizeof line, worker) && strstr(line, ": attaching anew"), "%s", line);
	worker_at(worker, version, address);
	cr_assert_str_neq(version, next);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1), "of the new one");
	kill(pid, SIGTERM);
	pclose(worker);
	DROP(d, "m@v3");
}
