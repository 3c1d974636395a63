/* Workers whose own memory becomes the version that they publish. */
#include "kept.h"

#include <gpuwm/dlpack.h>

#include "tests/support/any/fd_count.h"
#include "tests/support/any/own_folder.h"
#include "tests/support/any/reach.h"

#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(publishing_attached);

#define TENSORS 32

/* A publish of SMALL(1) that is filled, with an export of each tensor. */
struct exported {
	struct gpuwm_publish *publish;
	struct gpuwm_tensor_spec specs[TENSORS];
	unsigned count;
	struct DLManagedTensor *exports[TENSORS];
};

static int exported_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
			  struct exported *ret)
{
	int r;

	ret->count = checkpoint_tensors(SMALL(1));
	checkpoint_specs(SMALL(1), ret->specs);
	r = gpuwm_publish_begin(client, options, ret->specs, ret->count, &ret->publish);
	for (unsigned i = 0; i < ret->count && r >= 0; i++)
		r = gpuwm_publish_dlpack(ret->publish, i, &ret->exports[i]);
	return r < 0 ? r : publish_fill(ret->publish, SMALL(1));
}

static struct gpuwm_publish_options options_of(const char *device)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = "m@v1";
	options.device = device;
	options.segment_bytes = MB(2);
	options.stepwise = true;
	return options;
}

static void exported_free(struct exported *e)
{
	for (unsigned i = 0; i < e->count; i++)
		e->exports[i]->deleter(e->exports[i]);
}

/* By the CPU: not on a real GPU. */
static bool exported_holds(const struct exported *e, bool writable)
{
	uint8_t expected[KB(64)];

	for (unsigned i = 0; i < e->count; i++) {
		DLTensor *t = &e->exports[i]->dl_tensor;
		uint64_t bytes = t->dtype.bits / 8;

		for (int d = 0; d < t->ndim; d++)
			bytes *= (uint64_t)t->shape[d];
		if (bytes == 0)
			continue;
		content_fill(1, e->specs[i].name, 0, expected, bytes);
		if (!can_read(t->data) || memcmp(t->data, expected, bytes) != 0 ||
		    can_write(t->data) != writable)
			return false;
	}
	return true;
}

#define NEEDS_CPU() SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory")

GPUWMD_TEST(publishing_attached, is_what_workers_read_and_switches_where_it_is)
{
	struct gpuwm_publish_options options = options_of(d->device);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;
	struct gpuwm_tensor tensor;
	struct exported e;

	OK(exported_begin(client, &options, &e));
	OK(gpuwm_publish_commit_attached(e.publish, &mapping));
	cr_assert(mapping_holds(mapping, 1));
	cr_assert_eq(status_of(d, "leases"), 1);
	for (unsigned i = 0; i < e.count; i++) {
		OK(gpuwm_tensor_find(mapping, e.specs[i].name, &tensor));
		cr_assert(tensor.bytes == 0 || tensor.data == e.exports[i]->dl_tensor.data);
	}
	worker_reads(d, "m@v1", 1);
	options.name = "m@v2";
	OK(gpuwm_publish_begin(client, &options, e.specs, e.count, &publish));
	OK(publish_fill(publish, SMALL(2)));
	OK(gpuwm_publish_commit(publish, NULL));
	OK(gpuwm_switch(mapping, "m@v2", NULL));
	cr_assert(mapping_holds(mapping, 2));
	OK(gpuwm_tensor_find(mapping, e.specs[0].name, &tensor));
	cr_assert_eq(tensor.data, e.exports[0]->dl_tensor.data);
	OK(gpuwm_switch(mapping, "m@v1", NULL));
	cr_assert(mapping_holds(mapping, 1));
	exported_free(&e);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1", "m@v2");
}

/* The library reserves megabytes here; a sanitizer's allocator has 64 GiB for each size. */
#define RESERVED_MAX MB(1024)

/* Mappings of memfds, and addresses that are reserved; without the page that guards the stack of a thread, which libc keeps
 * for as many threads as ran at once. */
static size_t maps(void)
{
	const uint64_t guard = (uint64_t)sysconf(_SC_PAGESIZE);
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	size_t count = 0;

	while (fgets(line, sizeof line, file)) {
		char *dash;
		uint64_t from = strtoull(line, &dash, 16), bytes = strtoull(dash + 1, NULL, 16) - from;

		count += strstr(line, "memfd:") ||
			 (strstr(line, " ---p ") && bytes > guard && bytes < RESERVED_MAX);
	}
	fclose(file);
	return count;
}

GPUWMD_TEST(publishing_attached, leaves_nothing_behind_however_it_ends)
{
	struct gpuwm_publish_options options = options_of(d->device);
	struct gpuwm_client *client = client_new();
	size_t before = 0;
	int fds = 0;

	mallopt(M_ARENA_MAX, 1); /* an arena of a thread reserves addresses, and comes at any time */
	for (int i = 0; i < 30; i++) {
		struct gpuwm_mapping *mapping = NULL;
		struct exported e;

		OK(exported_begin(client, &options, &e));
		if (i % 2 == 0)
			exported_free(&e);
		if (i % 3 == 0)
			OK(gpuwm_publish_abort(e.publish, "enough"));
		else if (i % 3 == 1)
			OK(gpuwm_publish_commit(e.publish, NULL));
		else
			OK(gpuwm_publish_commit_attached(e.publish, &mapping));
		gpuwm_drop(mapping);
		if (i % 2 != 0)
			exported_free(&e);
		cr_assert(EVENTUALLY(10000, status_of(d, "leases") == 0));
		if (i % 3 != 0)
			DROP(d, "m@v1");
		if (i == 5) {
			before = maps();
			fds = fd_count();
		}
	}
	cr_assert(EVENTUALLY(10000, fd_count() == fds), "%d descriptors instead of %d", fd_count(), fds);
	/* A real driver's are its own. */
	cr_assert(backend() == BACKEND_CUDA || EVENTUALLY(10000, maps() == before),
		  "%zu mappings instead of %zu", maps(), before);
	gpuwm_close(client);
}

GPUWMD_TEST_IF(publishing_attached, an_abort_gives_the_budget_back_while_exports_live, NEEDS_CPU(),
	       gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_publish_options options;
	struct gpuwm_client *client;
	struct exported e;

	options = options_of(d->device);
	client = client_new();
	OK(exported_begin(client, &options, &e));
	OK(gpuwm_publish_abort(e.publish, "enough"));
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
	gpuwm_close(client);
	cr_assert(exported_holds(&e, true));
	exported_free(&e);
}

static char loader[64];

static void loader_put(void)
{
	char program[512];

	snprintf(program, sizeof program, "%s/bin/gpuwm-loader", build_path());
	cr_assert(symlink(program, loader) == 0);
}

static struct gpuwmd *start_with_own_loader(void)
{
	snprintf(loader, sizeof loader, "%s/gpuwm-loader", own_folder());
	loader_put();
	return gpuwmd_start("--loader", loader, NULL);
}

static void stop_with_own_loader(struct gpuwmd *d)
{
	loader_put();
	gpuwmd_stop_empty(d);
	unlink(loader);
}

/* The one that has the part; and there is no other one to check it. */
static void *checker_kill(void *data)
{
	struct gpuwmd *d = data;

	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));
	cr_assert(unlink(loader) == 0);
	loaders_kill(d, SIGKILL);
	return NULL;
}

GPUWMD_TEST_IF(publishing_attached, a_checker_that_dies_leaves_exports_their_bytes, NEEDS_CPU(),
	       start_with_own_loader(), stop_with_own_loader)
{
	pthread_t killer;
	struct gpuwm_publish_options options;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	struct exported e;
	int r;

	options = options_of(d->device);
	client = client_new();
	OK(exported_begin(client, &options, &e));
	loaders_kill(d, SIGSTOP); /* what it gets it does not check */
	cr_assert_eq(pthread_create(&killer, NULL, checker_kill, d), 0);
	r = gpuwm_publish_commit_attached(e.publish, &mapping);
	cr_assert_eq(pthread_join(killer, NULL), 0);
	cr_assert(r == -EIO || r == -ECANCELED, "%d: %s", r, gpuwm_error()->message);
	cr_assert(exported_holds(&e, true));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed") && memory_of(d) == 0));
	exported_free(&e);
	gpuwm_close(client);
}

Test(publishing_attached, what_the_checker_refuses_stays_with_exports)
{
	struct gpuwmd *d;
	struct gpuwm_publish_options options;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	struct exported e;

	SKIP_UNLESS(backend() == BACKEND_FAKECUDA, "injects a failure of the checker's driver");
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	setenv("FAKECUDA_FAIL", "cuMemImportFromShareableHandle:1:999", 1);
	d = gpuwmd_start(NULL);
	options = options_of(d->device);
	client = client_new();
	OK(exported_begin(client, &options, &e));
	FAILS(EBADMSG, gpuwm_publish_commit_attached(e.publish, &mapping));
	cr_assert(exported_holds(&e, true));
	exported_free(&e);
	gpuwm_close(client);
	gpuwmd_stop_empty(d);
}

/* ---- gpuwmd dies --------------------------------------------------------- */

struct committing {
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	int r;
};

static void *commit_in_thread(void *data)
{
	struct committing *c = data;

	c->r = gpuwm_publish_commit_attached(c->publish, &c->mapping);
	return NULL;
}

/* The version is there and leased, or there is none and the memory is the process's own. */
static void expect_one_or_the_other(struct gpuwmd *d, const struct exported *e, const struct committing *c)
{
	bool ready = c->r >= 0;

	cr_assert(c->r == 0 || c->r == -ECANCELED || c->r == -ECONNRESET, "%d: %s", c->r,
		  gpuwm_error()->message);
	cr_assert(exported_holds(e, !ready));
	cr_assert_eq(version_is(d, "m", "v1", "ready"), ready);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == ready));
	if (ready)
		OK(gpuwm_mapping_check(c->mapping));
}

static const long moments_us[] = {0, 1000, 3000, 6000, 10000, 20000, 50000};
#define MOMENTS (sizeof moments_us / sizeof moments_us[0])

GPUWMD_TEST_IF(publishing_attached, gpuwmd_dies_at_any_moment_of_a_commit, NEEDS_CPU(),
	       gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop_empty)
{
	struct gpuwm_publish_options options;
	unsigned failed = 0;

	options = options_of(d->device);
	/* On a busy machine a thread may be done before the next one kills: then again. */
	for (size_t i = 0; i < MOMENTS || (failed == 0 && i < 10 * MOMENTS); i++) {
		struct gpuwm_client *client = client_new();
		struct committing c = {0};
		struct exported e;
		pthread_t thread;

		OK(exported_begin(client, &options, &e));
		c.publish = e.publish;
		cr_assert(pthread_create(&thread, NULL, commit_in_thread, &c) == 0);
		nanosleep(&(struct timespec){.tv_nsec = moments_us[i % MOMENTS] * 1000}, NULL);
		kept_kill(d, SIGKILL);
		pthread_join(thread, NULL);
		expect_one_or_the_other(d, &e, &c);
		exported_free(&e);
		OK(gpuwm_detach(c.mapping));
		gpuwm_close(client);
		failed += c.r < 0;
		if (c.r >= 0)
			DROP(d, "m@v1");
	}
	cr_assert_gt(failed, 0, "no kill hit");
}

/* ---- several parts ------------------------------------------------------- */

/* argv: device, rank, the publish to join, the file for its id. Says 'b', commits on 'c', says 'r' when it has the
 * version and 'f' when it failed with its bytes its own. */
static int rank_publishes(int argc, char **argv)
{
	struct gpuwm_publish_options options;
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_client *client;
	struct exported e;
	FILE *file;
	int r;

	CHILD_ASSERT(argc == 4);
	options = options_of(argv[0]);
	options.rank = (uint32_t)atoi(argv[1]);
	options.world = 2;
	options.join = argv[2][0] ? argv[2] : NULL;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(exported_begin(client, &options, &e) == 0);
	CHILD_ASSERT((file = fopen(argv[3], "we")) != NULL);
	fputs(gpuwm_publish_id(e.publish), file);
	fclose(file);
	child_say('b');
	if (child_hear() != 'c')
		return 1;
	r = gpuwm_publish_commit_attached(e.publish, &mapping);
	if (r == 0)
		CHILD_ASSERT(mapping_holds(mapping, 1) && gpuwm_mapping_version(mapping)->rank == options.rank);
	CHILD_ASSERT(backend() == BACKEND_CUDA || exported_holds(&e, r < 0));
	child_say(r == 0 ? 'r' : 'f');
	child_hear();
	exported_free(&e);
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

static void ranks_begin(struct gpuwmd *d, struct process ranks[2])
{
	char path[96], id[33] = "";
	FILE *file;

	snprintf(path, sizeof path, "%s/publish", d->dir);
	for (int i = 0; i < 2; i++) {
		ranks[i] = process_start(rank_publishes, d->device, i ? "1" : "0", id, path, NULL);
		process_expect(&ranks[i], 'b');
		file = fopen(path, "re");
		cr_assert(file && fgets(id, sizeof id, file) && strlen(id) == 32);
		fclose(file);
	}
}

GPUWMD_TEST(publishing_attached, ranks_wait_for_each_other)
{
	struct process ranks[2];

	ranks_begin(d, ranks);
	process_tell(&ranks[1], 'c');
	/* It has committed, and asks for its lease. */
	cr_assert(EVENTUALLY(10000, status_of(d, "waiting") == 1));
	cr_assert(!version_is(d, "m", "v1", "ready"));
	process_tell(&ranks[0], 'c');
	for (int i = 0; i < 2; i++)
		process_expect(&ranks[i], 'r');
	cr_assert_eq(status_of(d, "leases"), 2);
	for (int i = 0; i < 2; i++) {
		process_tell(&ranks[i], 'd');
		process_finish(&ranks[i]);
	}
	DROP(d, "m@v1");
}

GPUWMD_TEST(publishing_attached, a_rank_that_dies_leaves_the_other_its_bytes)
{
	struct process ranks[2];

	ranks_begin(d, ranks);
	process_tell(&ranks[1], 'c');
	cr_assert(EVENTUALLY(10000, status_of(d, "waiting") == 1));
	process_kill(&ranks[0], SIGKILL);
	process_expect(&ranks[1], 'f');
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed")));
	process_tell(&ranks[1], 'd');
	process_finish(&ranks[1]);
}

/* ---- writes -------------------------------------------------------------- */

/* argv: device. Writes into what it has published. */
static int writes_afterwards(int argc, char **argv)
{
	struct gpuwm_publish_options options;
	struct gpuwm_mapping *mapping;
	struct gpuwm_client *client;
	struct exported e;

	CHILD_ASSERT(argc == 1);
	options = options_of(argv[0]);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(exported_begin(client, &options, &e) == 0);
	CHILD_ASSERT(gpuwm_publish_commit_attached(e.publish, &mapping) == 0);
	child_say('w');
	child_hear();
	*(volatile uint8_t *)e.exports[0]->dl_tensor.data = 1;
	return 0;
}

GPUWMD_TEST_IF(publishing_attached, a_write_afterwards_faults, NEEDS_CPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	struct process writer;

	writer = process_start(writes_afterwards, d->device, NULL);
	process_expect(&writer, 'w');
	process_tell(&writer, 'w');
	cr_assert(died_of_fault(process_join(&writer)));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
}
