/* A driver that fails at each call in turn: every time a clean error, and
 * nothing left. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(driver_failures);

#define FAILURE 999 /* the driver's "unknown error" */
#define FAILURES_MAX 400

/* Attaches and detaches: 0, or 1 after a clean error. */
static int worker_failing(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	int r;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	r = gpuwm_attach(client, "m", NULL, &mapping);
	if (r == 0) {
		bool whole = mapping_holds(mapping, 1);

		/* Detaching may fail to synchronise; it must be undone all the same. */
		gpuwm_detach(mapping);
		r = whole ? 0 : -EIO;
	} else {
		CHILD_ASSERT(gpuwm_error()->message[0]);
	}
	CHILD_ASSERT(gpuwm_ping(client, NULL) == 0);
	gpuwm_close(client);
	return r < 0;
}

/* Fails call n in processes named so. */
static void fail_set(const struct gpuwmd *d, const char *program, unsigned n)
{
	char text[96];

	snprintf(text, sizeof text, "*:%u:%d", n, FAILURE);
	setenv("FAKECUDA_FAIL", text, 1);
	setenv("FAKECUDA_FAIL_ONLY", program, 1);
	snprintf(text, sizeof text, "%s/calls", d->dir);
	setenv("FAKECUDA_LOG", text, 1);
	unlink(text);
}

static void fail_unset(void)
{
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_ONLY");
	unsetenv("FAKECUDA_LOG");
}

/* Whether there was such a call. */
static bool fail_happened(const struct gpuwmd *d)
{
	char path[96], line[256];
	bool happened = false;
	int result;
	FILE *file;

	snprintf(path, sizeof path, "%s/calls", d->dir);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof line, file))
		happened |= sscanf(line, "%*d %*s %*s %d", &result) == 1 && result == FAILURE;
	if (file)
		fclose(file);
	return happened;
}

/* argv: device. Publishes: 0, or 1 after a clean error. */
static int publisher_failing(int argc, char **argv)
{
	struct gpuwm_client *client;
	int r;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	r = publish_version(client, argv[0], "p@v1", SMALL(1));
	CHILD_ASSERT(r == 0 || gpuwm_error()->message[0]);
	CHILD_ASSERT(gpuwm_ping(client, NULL) == 0);
	gpuwm_close(client);
	return r < 0;
}

/* Runs it with each call failing in turn, until there is no such call. */
static unsigned each_call_fails(struct gpuwmd *d, process_fn *fn)
{
	uint64_t before = memory_of(d);
	bool happened = true;
	unsigned n;

	for (n = 1; n < FAILURES_MAX && happened; n++) {
		struct process worker;
		int status;

		fail_set(d, "exe", n);
		worker = process_start(fn, d->device, NULL);
		fail_unset();
		status = process_join(&worker);
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) <= 1, "call %u: status %#x", n, status);
		happened = fail_happened(d);
		cr_assert(happened || WEXITSTATUS(status) == 0);
		if (version_is(d, "p", "v1", "ready"))
			DROP(d, "p@v1");
		cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0 && status_of(d, "publishes") == 0 &&
						      memory_of(d) == before),
			  "call %u", n);
	}
	cr_assert_lt(n, FAILURES_MAX);
	return n - 2;
}

FAKECUDA_TEST(driver_failures, each_call_of_a_worker_may_fail, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	unsigned calls;

	load_small(d, 1);
	calls = each_call_fails(d, worker_failing);
	printf("an attach, a look and a detach make %u calls\n", calls);
	cr_assert_gt(calls, 10);
	DROP(d, "m@v1");
}

FAKECUDA_TEST(driver_failures, each_call_of_a_publisher_may_fail, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	unsigned calls;

	calls = each_call_fails(d, publisher_failing);
	printf("a publish makes %u calls\n", calls);
	cr_assert_gt(calls, 10);
}

/* A daemon whose loaders fail at call n: whether there was such a call. Calls that fail
 * early leave it without devices; it serves and leaves all the same. */
static bool load_with_failure(unsigned n)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwmd d;
	bool happened;
	int r, status;

	folder_make(&d);
	strcpy(d.device, "GPU-fa4e0000-0000-4000-8000-000000000000");
	fail_set(&d, "gpuwm-loader", n);
	d.pid = gpuwmd_spawn(&d, NULL);
	fail_unset();
	options.flags = GPUWM_CONNECT_ADMIN;
	options.wait_ms = 20000;
	OK(gpuwm_connect(&options, &d.admin));
	EVENTUALLY(1000, status_of(&d, "standby") == 1);
	r = load_try(&d, checkpoint_write(&d, "v1", SMALL(1)), "m@v1");
	cr_assert(r == 0 || gpuwm_error()->message[0]);
	if (r == 0)
		DROP(&d, "m@v1");
	cr_assert(EVENTUALLY(SOON_MS, status_of(&d, "bytes") == 0 && status_of(&d, "publishes") == 0 &&
					      memory_of(&d) == 0));
	gpuwm_close(d.admin);
	cr_assert(kill(d.pid, SIGTERM) == 0 && waitpid(d.pid, &status, 0) == d.pid);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "call %u: gpuwmd left with %#x", n, status);
	happened = fail_happened(&d);
	cr_assert(happened || r == 0, "%d", r);
	harness_cleanup();
	return happened;
}

Test(driver_failures, each_call_of_a_loader_may_fail, .timeout = 500)
{
	unsigned n = 1;

	ON_FAKECUDA();
	setenv("FAKECUDA_DEVICES", "1", 1);
	while (n < FAILURES_MAX && load_with_failure(n))
		n++;
	printf("a load on a GPU makes %u calls\n", n - 1);
	cr_assert(n > 40 && n < FAILURES_MAX, "%u", n);
}

/* ---- without memory for an import: that is no damage ---- */

#define NO_MEMORY_TO_IMPORT "cuMemImportFromShareableHandle:1:2"

static int worker_without_memory(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	(void)argc, (void)argv;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == -ENOMEM);
	CHILD_ASSERT(strstr(gpuwm_error()->message, "no memory to import"));
	CHILD_ASSERT(gpuwm_attach(client, "m", NULL, &mapping) == 0);
	CHILD_ASSERT(mapping_holds(mapping, 1));
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

FAKECUDA_TEST(driver_failures, who_attaches_without_memory_is_told_so, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct process worker;

	load_small(d, 1);
	setenv("FAKECUDA_FAIL", NO_MEMORY_TO_IMPORT, 1);
	worker = process_start(worker_without_memory, NULL);
	unsetenv("FAKECUDA_FAIL");
	process_finish(&worker);
	DROP(d, "m@v1");
}

Test(driver_failures, what_a_loader_can_not_import_without_memory_is_not_called_damaged)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_FAIL", NO_MEMORY_TO_IMPORT, 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = gpuwmd_start(NULL);
	unsetenv("FAKECUDA_FAIL");
	unsetenv("FAKECUDA_FAIL_ONLY");
	FAILS(ENOMEM, publish_version(d->admin, d->device, "p@v1", SMALL(1)));
	cr_assert(strstr(gpuwm_error()->message, "no memory to import"), "%s", gpuwm_error()->message);
	FAILS(ENOMEM, load_try(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1"));
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
	gpuwmd_stop(d);
}
