/* A GPU is lost while others serve: what lay there is tainted, nothing new is made there, and it comes back. */
#include "tiers.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char lost_path[64];

SYSTEM_SUITE(losses);

/* A look of the standby loader, and an examination. */
#define FOUND_MS 20000

/* ---- the machine ------------------------------------------------------ */

/* Before gpuwmd starts: from then on all processes look there. */
static void losses_prepare(void)
{
	snprintf(lost_path, sizeof lost_path, "%s/lost", own_folder());
	setenv("FAKECUDA_LOST", lost_path, 1);
}

/* The first GPU is lost in this way; "fine": it is back. */
static void gpu_is(const char *how)
{
	char next[80];
	FILE *file;

	snprintf(next, sizeof next, "%s.next", lost_path);
	file = fopen(next, "we");
	cr_assert(file && fprintf(file, "0 %s\n", how) > 0 && fclose(file) == 0);
	cr_assert(rename(next, lost_path) == 0);
}

static struct gpuwmd *start(void)
{
	losses_prepare();
	return gpuwmd_start(NULL);
}

static const char *gpu(struct gpuwmd *d, size_t number)
{
	const struct gpuwm_device *devices;

	cr_assert_lt(number + 1, gpuwm_devices(d->admin, &devices));
	return devices[number + 1].id;
}

/* Of the first GPU: whether gpuwmd holds it for lost. */
static bool is_lost(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *device;
	bool lost = false;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		if (strcmp(json_string_value(json_object_get(device, "device")), d->device) == 0)
			lost = json_object_get(device, "lost") != NULL;
	}
	json_decref(status);
	return lost;
}

static int load_on(struct gpuwmd *d, const char *name, const char *const *devices, size_t count)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;
	int r;

	options.source = checkpoint_write(d, "checkpoint", SMALL(1));
	options.name = name;
	options.devices = devices;
	options.device_count = count;
	r = gpuwm_load(d->admin, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(d->admin, job, 30000);
}

static int load_one(struct gpuwmd *d, const char *name, size_t number)
{
	const char *device = gpu(d, number);

	return load_on(d, name, &device, 1);
}

static int attach(struct gpuwmd *d, const char *ref, size_t number)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	bool holds;
	int r;

	options.device = gpu(d, number);
	r = gpuwm_attach(d->admin, ref, &options, &mapping);
	if (r < 0)
		return r;
	holds = mapping_holds(mapping, 1);
	OK(gpuwm_detach(mapping));
	return holds ? 0 : -EBADMSG;
}

static bool is_tainted(struct gpuwmd *d, const char *model)
{
	json_t *version = version_entry(d, model, "v1");
	const char *code = json_string_value(json_object_get(json_object_get(version, "tainted"), "code"));
	bool tainted = code && strcmp(code, "ENODEV") == 0;

	json_decref(version);
	return tainted;
}

/* ---- what is seen of it ----------------------------------------------- */

struct seen {
	const char *kind, *model;
	bool came;
};

static void event_note(const struct gpuwm_event *event, void *data)
{
	struct seen *seen = data;

	if (strcmp(event->kind, seen->kind) == 0 && strcmp(event->model, seen->model) == 0 &&
	    (strcmp(seen->kind, "device_back") == 0 || strstr(event->json, "ENODEV")))
		seen->came = true;
}

/* Waits until such an event comes. */
static bool event_comes(struct gpuwm_events *events, const char *kind, const char *model)
{
	struct seen seen = {.kind = kind, .model = model};
	int64_t until = clock_ms() + FOUND_MS;

	while (!seen.came && clock_ms() < until)
		cr_assert_geq(gpuwm_events_dispatch(events, until - clock_ms(), event_note, &seen), 0);
	return seen.came;
}

FAKECUDA_TEST(losses, taint_what_lay_there_and_others_go_on, start(), gpuwmd_stop)
{
	struct gpuwm_attach_options attach_to = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct gpuwm_publish *publish;
	struct gpuwm_events *events;

	OK(load_one(d, "m@v1", 0));
	OK(load_one(d, "other@v1", 1));
	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	gpu_is("bus");
	cr_assert(event_comes(events, "device_lost", ""));
	gpuwm_events_close(events);
	cr_assert(is_tainted(d, "m") && !is_tainted(d, "other"));
	FAILS(ENODEV, attach(d, "m", 0));
	cr_assert(strstr(gpuwm_error()->message, "fallen off the bus"), "%s", gpuwm_error()->message);
	FAILS(ENODEV, load_one(d, "m@v2", 0));
	cr_assert(strstr(gpuwm_error()->message, "fallen off the bus"), "%s", gpuwm_error()->message);
	FAILS(ENODEV, publish_begin(d->admin, d->device, "m@v2", SMALL(1), &publish));
	attach_to.device = d->device;
	FAILS(ENODEV, gpuwm_claim(d->admin, "m@v3", &attach_to, &mapping));
	OK(attach(d, "other", 1));
	OK(load_one(d, "other@v2", 1));
	CTL_IS(0, "status");
	SAYS("is LOST: ");
	OK(gpuwm_drain_device(d->admin, d->device));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 2));
}

/* Of two versions the one that nobody has mapped has a host copy. */
FAKECUDA_TEST(losses, cost_no_version_that_has_a_host_copy, start(), gpuwmd_stop)
{
	struct gpuwm_events *events;

	OK(load_one(d, "m@v1", 0));
	OK(load_one(d, "other@v1", 0));
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	gpu_is("bus");
	cr_assert(event_comes(events, "tainted", "other"));
	cr_assert(!is_tainted(d, "m") && lies_on(d, "v1", "host"));
	CTL_IS(0, "verify", "m@v1", "--wait");
	cr_assert(CTL("promote", "m@v1", "--wait") != 0);
	SAYS("fallen off the bus");
	gpu_is("fine");
	cr_assert(event_comes(events, "device_back", ""));
	gpuwm_events_close(events);
	CTL_IS(0, "promote", "m@v1", "--wait");
	OK(attach(d, "m", 0));
}

FAKECUDA_TEST(losses, are_told_of_each_version, start(), gpuwmd_stop)
{
	struct gpuwm_events *events;

	OK(load_one(d, "m@v1", 0));
	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	gpu_is("bus");
	cr_assert(event_comes(events, "tainted", "m"));
	gpuwm_events_close(events);
}

FAKECUDA_TEST(losses, end_the_regions_there, start(), gpuwmd_stop)
{
	struct raw_region on_gpu, on_host, none;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_CREATE(&on_gpu, sock, TEXT("name", "kv"), TEXT("device", d->device),
				   NUMBER("bytes", MB(2)), NUMBER("chunks", 1)),
		     0, "%s", raw_refusal());
	region_make(&on_host, sock, "host", "process");
	gpu_is("bus");
	cr_assert(EVENTUALLY(FOUND_MS, region_is(d, "kv", "ended", 1)));
	cr_assert_eq(atomic_load(&on_gpu.control.head->ended), CONTROL_REMOVED);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv")), -ESHUTDOWN);
	cr_assert(strstr(raw_refusal(), "fallen off the bus"), "%s", raw_refusal());
	cr_assert_eq(REGION_CREATE(&none, sock, TEXT("device", d->device), NUMBER("bytes", MB(2)),
				   NUMBER("chunks", 1)),
		     -ENODEV);
	cr_assert(region_is(d, "host", "ready", 1));
	cr_assert_eq(region_close(sock, &on_gpu), 0);
	cr_assert_eq(region_close(sock, &on_host), 0);
	close(sock);
}

/* ---- who finds it ----------------------------------------------------- */

/* NVML says nothing: a load does not get a context. */
FAKECUDA_TEST(losses, are_found_by_a_load_that_fails, start(), gpuwmd_stop)
{
	OK(load_one(d, "m@v1", 0));
	gpu_is("unavailable");
	FAILS(ENODEV, load_one(d, "m@v2", 0));
	cr_assert(EVENTUALLY(SOON_MS, is_lost(d) && is_tainted(d, "m")));
	FAILS(ENODEV, load_one(d, "m@v3", 0));
	cr_assert(strstr(gpuwm_error()->message, "is lost: "), "%s", gpuwm_error()->message);
	OK(load_one(d, "other@v1", 1));
}

FAKECUDA_TEST(losses, by_ecc_errors_are_found_by_what_reads_the_memory, start(), gpuwmd_stop)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	OK(load_one(d, "m@v1", 0));
	gpu_is("ecc");
	OK(gpuwm_verify(d->admin, "m", NULL, jobs, &count));
	FAILS(ENODEV, gpuwm_job_wait(d->admin, jobs[0], 30000));
	cr_assert(EVENTUALLY(SOON_MS, is_lost(d) && is_tainted(d, "m")));
	FAILS(ENODEV, attach(d, "m", 0));
	cr_assert(strstr(gpuwm_error()->message, "ECC"), "%s", gpuwm_error()->message);
}

/* What a process saw when it began stays so for it: only the next loader misses the GPU. */
static void next_loader_misses(const char *how, const char *words)
{
	struct gpuwmd *d = start();

	OK(load_one(d, "m@v1", 0));
	OK(load_one(d, "other@v1", 1));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "standby") == 1));
	gpu_is(how);
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(FOUND_MS, is_lost(d)));
	cr_assert(is_tainted(d, "m") && !is_tainted(d, "other"));
	FAILS(ENODEV, load_one(d, "m@v2", 0));
	cr_assert(strstr(gpuwm_error()->message, words), "%s", gpuwm_error()->message);
	OK(load_one(d, "other@v2", 1));
	gpuwmd_stop(d);
}

Test(losses, of_a_gpu_that_left_the_machine)
{
	ON_FAKECUDA();
	next_loader_misses("absent", "knows no such device any more");
}

Test(losses, of_a_gpu_that_is_divided)
{
	ON_FAKECUDA();
	next_loader_misses("mig", "divided into MIG devices");
}

/* Where there is no NVML nobody tells what is free, and that is all. */
Test(losses, need_no_nvml_where_none_is)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_FAIL", "nvmlInit_v2:0:9", 1);
	d = start();
	OK(load_one(d, "m@v1", 0));
	cr_assert(!is_lost(d));
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* An error that a program's own kernel makes says nothing about the GPU. */
Test(losses, are_not_what_breaks_one_context)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	setenv("FAKECUDA_FAIL", "cuMemcpyHtoDAsync_v2:1:700,cuMemcpyHtoD_v2:1:700", 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = start();
	FAILS(EIO, load_one(d, "m@v1", 0));
	cr_assert(!is_lost(d));
	FAILS(EIO, load_one(d, "m@v2", 0));
	gpuwmd_stop(d);
}

/* ---- what is under way ------------------------------------------------ */

FAKECUDA_TEST(losses, fail_what_is_being_published, start(), gpuwmd_stop)
{
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;

	client = client_new();
	OK(publish_begin(client, d->device, "p@v1", SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	gpu_is("bus");
	cr_assert(EVENTUALLY(FOUND_MS, is_lost(d) && version_is(d, "p", "v1", "failed")));
	cr_assert(gpuwm_publish_commit(publish, &version) < 0);
	gpuwm_close(client);
}

/* Whether a call into the driver does not return. */
static bool call_hangs(const char *calls)
{
	char line[256];
	int result = 0;
	FILE *file = fopen(calls, "re");

	while (file && result != -1 && fgets(line, sizeof line, file))
		sscanf(line, "%*d %*s %*s %d", &result);
	if (file)
		fclose(file);
	return result == -1;
}

/* Its loader hangs in the driver: nobody waits for that. */
Test(losses, end_jobs_that_hang)
{
	struct gpuwmd *d;
	char calls[80];
	uint64_t job;

	ON_FAKECUDA();
	snprintf(calls, sizeof calls, "%s/calls", own_folder());
	setenv("FAKECUDA_LOG", calls, 1);
	setenv("FAKECUDA_HANG", "cuMemcpyHtoDAsync_v2:1,cuMemcpyHtoD_v2:1", 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = start();
	OK(load_start(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(FOUND_MS, call_hangs(calls)));
	unlink(calls);
	gpu_is("bus");
	FAILS(ENODEV, gpuwm_job_wait(d->admin, job, FOUND_MS));
	unlink(calls);
	gpuwmd_stop(d);
}

/* The keeper, which takes no descriptor for a while, decides whether it becomes ready. */
Test(losses, taint_what_becomes_ready_later)
{
	struct gpuwmd *d;
	uint64_t job;

	ON_FAKECUDA();
	losses_prepare();
	d = gpuwmd_start_kept(&(const struct kept){0});
	cr_assert(kill(d->keeper, SIGSTOP) == 0);
	OK(load_start(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1", NULL, &job));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "checking")));
	gpu_is("bus");
	cr_assert(EVENTUALLY(SOON_MS, is_lost(d)));
	cr_assert(kill(d->keeper, SIGCONT) == 0);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "ready")));
	cr_assert(is_tainted(d, "m"));
	gpuwmd_stop(d);
}

/* ---- replicas --------------------------------------------------------- */

FAKECUDA_TEST(losses, leave_replicas_on_other_devices, start(), gpuwmd_stop_empty)
{
	const char *devices[2];

	devices[0] = gpu(d, 0);
	devices[1] = gpu(d, 1);
	OK(load_on(d, "m@v1", devices, 2));
	gpu_is("bus");
	cr_assert(EVENTUALLY(FOUND_MS, is_tainted(d, "m")));
	FAILS(ENODEV, attach(d, "m", 0));
	OK(attach(d, "m", 1));
	CTL_IS(0, "drain", "--yes", "--device", d->device);
	SAYS("m@v1");
	OK(attach(d, "m", 1));
	DROP(d, "m@v1");
}

/* ---- drained ---------------------------------------------------------- */

FAKECUDA_TEST(losses, are_let_go_by_drain, start(), gpuwmd_stop)
{
	struct process worker;

	OK(load_one(d, "m@v1", 0));
	OK(load_one(d, "pinned@v1", 0));
	OK(load_one(d, "other@v1", 1));
	OK(gpuwm_pin(d->admin, "pinned", "p"));
	worker = worker_start(d, "m", 1);
	cr_assert_neq(CTL("drain", "--yes", "--device", d->device), 0, "%s", output);
	SAYS("is not lost");
	gpu_is("bus");
	cr_assert(EVENTUALLY(FOUND_MS, is_lost(d)));
	cr_assert_eq(status_of(d, "leases"), 1);
	CTL_IS(0, "drain", "--yes", "--device", "cuda:0");
	SAYS("pinned@v1");
	cr_assert(!strstr(output, "m@v1"), "%s", output);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0 && status_of(d, "versions") == 2));
	OK(gpuwm_unpin(d->admin, "pinned@v1", "p"));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	process_kill(&worker, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
	OK(attach(d, "other", 1));
}

FAKECUDA_TEST(losses, end_when_the_gpu_can_be_used_again, start(), gpuwmd_stop_empty)
{
	struct gpuwm_events *events;

	OK(load_one(d, "m@v1", 0));
	gpu_is("absent");
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(FOUND_MS, is_lost(d)));
	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	gpu_is("fine");
	cr_assert(event_comes(events, "device_back", ""));
	gpuwm_events_close(events);
	cr_assert(!is_lost(d) && is_tainted(d, "m"));
	FAILS(ENODEV, attach(d, "m", 0));
	OK(load_one(d, "new@v1", 0));
	OK(attach(d, "new", 0));
	CTL_IS(0, "drain", "--yes", "--device", d->device);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	DROP(d, "new@v1");
}

/* ---- restarts --------------------------------------------------------- */

Test(losses, survive_a_restart)
{
	struct gpuwmd *d;

	ON_FAKECUDA();
	losses_prepare();
	d = gpuwmd_start_kept(&(const struct kept){0});
	OK(load_one(d, "m@v1", 0));
	OK(load_one(d, "other@v1", 1));
	gpu_is("bus");
	cr_assert(EVENTUALLY(FOUND_MS, is_lost(d)));
	kept_kill(d, SIGKILL);
	cr_assert(is_lost(d) && is_tainted(d, "m") && !is_tainted(d, "other"));
	FAILS(ENODEV, attach(d, "m", 0));
	FAILS(ENODEV, load_one(d, "m@v2", 0));
	OK(attach(d, "other", 1));
	OK(gpuwm_drain_device(d->admin, d->device));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "versions") == 1));
	gpu_is("fine");
	cr_assert(EVENTUALLY(FOUND_MS, !is_lost(d)));
	OK(load_one(d, "m@v1", 0));
	kept_kill(d, SIGKILL);
	cr_assert(!is_lost(d) && !is_tainted(d, "m"));
	OK(attach(d, "m", 0));
	gpuwmd_stop(d);
}
