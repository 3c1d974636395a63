/* verify: what lies in memory is what was checked, or it is tainted; and the scrub that asks by itself. */
#include "kept.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

SYSTEM_SUITE(verify);

/* Replicas that are there, verified: the error of the first that is not as it was. */
static int verify(struct gpuwmd *d, const char *ref)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;
	int r = 0;

	OK(gpuwm_verify(d->admin, ref, NULL, jobs, &count));
	cr_assert_geq(count, 1);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = gpuwm_job_wait(d->admin, jobs[i], 30000);
	return r;
}

static bool is_tainted(struct gpuwmd *d, const char *tag)
{
	json_t *version = version_entry(d, "m", tag);
	bool tainted = json_object_get(version, "tainted") != NULL;

	json_decref(version);
	return tainted;
}

/* ---- what is as it was ------------------------------------------------ */

GPUWMD_TEST(verify, of_what_is_as_it_was)
{
	json_t *answer;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	load_version(d, safetensors_write(d, "none.safetensors", "{}", 0), "m@none");
	OK(verify(d, "m"));
	OK(verify(d, "m@none"));
	CTL_IS(0, "verify", "m", "--wait");
	SAYS("intact");
	SAYS(" MiB");
	SAYS(" GiB/s");
	CTL_IS(0, "verify", "m@v1", "--wait", "--device", d->device);
	CTL_IS(0, "-o", "json", "verify", "m", "--wait");
	answer = json_loads(output, 0, NULL);
	cr_assert_eq(json_array_size(json_object_get(answer, "jobs")), 1, "%s", output);
	json_decref(answer);
	CTL_IS(0, "verify", "m");
	SAYS("verifies m; gpuwmctl jobs ");
	cr_assert(!is_tainted(d, "v1"));
	DROP(d, "m@none", "m@v1");
}

/* Changes a byte of the last tensor, and no time of the file. */
static void file_change(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	struct stat st;
	char byte;

	cr_assert(fd >= 0 && fstat(fd, &st) == 0 && pread(fd, &byte, 1, st.st_size - 1) == 1);
	byte ^= 1;
	cr_assert(pwrite(fd, &byte, 1, st.st_size - 1) == 1);
	cr_assert(futimens(fd, (struct timespec[]){st.st_atim, st.st_mtim}) == 0);
	close(fd);
}

/* Whoever uses the version, and on whatever tier it lies. */
GPUWMD_TEST(verify, of_its_files_says_whether_they_are_as_they_were)
{
	const char *path = strdup(checkpoint_write(d, "v1", SMALL(1)));
	struct gpuwm_mapping *mapping;
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	load_version(d, path, "m@v1");
	OK(gpuwm_attach(d->admin, "m@v1", NULL, &mapping));
	CTL_IS(0, "verify", "m@v1", "--source", "--wait");
	SAYS("intact");
	gpuwm_detach(mapping);
	CTL_IS(0, "demote", "m@v1", "--to", "files", "--wait");
	CTL_IS(1, "verify", "m@v1", "--wait");
	SAYS("there is no memory to verify");
	CTL_IS(0, "verify", "m@v1", "--source", "--wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	file_change(path);
	CTL_IS(9, "verify", "m@v1", "--source", "--wait");
	SAYS("differs");
	SAYS(path);
	SAYS("the files changed since they were described");
	cr_assert(!is_tainted(d, "v1"), "its memory is as it was");
	CTL_IS(0, "verify", "m@v1", "--wait");
	cr_assert_eq(unlink(path), 0);
	OK(gpuwm_verify_source(d->admin, "m@v1", NULL, jobs, &count));
	cr_assert_eq(count, 1);
	cr_assert_eq(gpuwm_job_wait(d->admin, jobs[0], 30000), -ENOENT);
	DROP(d, "m@v1");
	free((char *)path);
}

GPUWMD_TEST_BY(verify, of_what_is_not_there_says_so, gpuwmd_start(NULL), gpuwmd_stop)
{
	load_small(d, 1);
	CTL_IS(4, "verify", "m@v9");
	CTL_IS(4, "verify", "m", "--device", "GPU-no");
	SAYS("m@v1 has no such part on GPU-no");
	CTL_IS(2, "verify", "m", "--device", "host", "--device", "host");
	CTL_IS(2, "verify");
	cr_assert_eq(status_of(d, "jobs_running"), 0);
}

/* Nobody holds it: freed, whatever reads it; and its bytes are there again when that process is gone. */
GPUWMD_TEST_BY(verify, of_what_is_retired_meanwhile_is_no_hold, gpuwmd_start("--set", "limits.loaders=2", NULL),
	       gpuwmd_stop_empty)
{
	uint64_t jobs[GPUWM_VERIFY_JOBS_MAX];
	size_t count;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	for (int i = 0; i < 8; i++)
		OK(gpuwm_verify(d->admin, "m", NULL, jobs, &count));
	DROP(d, "m@v1");
}

static int64_t scrub_of(struct gpuwmd *d, const char *key)
{
	json_t *status = query(d->admin, "status", NULL);
	int64_t value = json_integer_value(json_object_get(json_object_get(status, "scrub"), key));

	json_decref(status);
	return value;
}

static bool scrub_is_on(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL), *scrub = json_object_get(status, "scrub");
	bool on = json_is_true(json_object_get(scrub, "running")) ||
		  json_integer_value(json_object_get(scrub, "passes")) > 0;

	json_decref(status);
	return on;
}

GPUWMD_TEST_BY(verify, is_done_by_the_scrub_too,
	       gpuwmd_start("--set", "scrub.interval=1", "--set", "scrub.duty=100", NULL), gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_assert(EVENTUALLY(20000, scrub_of(d, "passes") >= 2));
	cr_assert_eq(scrub_of(d, "skipped"), 0);
	cr_assert(!is_tainted(d, "v1") && !is_tainted(d, "v2"));
	DROP(d, "m@v2", "m@v1");
}

/* The scrub is due 8 seconds after the load. It does not begin anew when gpuwmd is restarted after 4. */
GPUWMD_TEST_BY(verify, by_the_scrub_is_not_put_off_by_restarts,
	       gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT "[scrub]\ninterval = 8\n"}),
	       gpuwmd_stop_empty)
{
	int64_t started = clock_ms(), restarted;

	load_small(d, 1);
	cr_assert(!EVENTUALLY(4000 - (clock_ms() - started), false));
	kept_kill(d, SIGKILL);
	restarted = clock_ms();
	cr_assert(EVENTUALLY(20000, scrub_is_on(d)));
	cr_assert_lt(clock_ms() - restarted, 7500);
	DROP(d, "m@v1");
}

/* Kept to be looked at, for nobody else. */
GPUWMD_TEST(verify, of_what_is_retired_and_pinned_can_be_looked_at)
{
	load_small(d, 1);
	OK(gpuwm_pin(d->admin, "m@v1", "look"));
	OK(gpuwm_swap(d->admin,
		      &(struct gpuwm_swap_options){.size = sizeof(struct gpuwm_swap_options), .model = "m"},
		      NULL));
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	CTL_IS(0, "show", "m@v1");
	SAYS("workers don't get this version: m@v1 is retiring");
	CTL_IS(4, "show", "m@v2");
	OK(gpuwm_unpin(d->admin, "m@v1", "look"));
}

/* ---- damage ----------------------------------------------------------- */

#ifdef GPUWM_CUDA
#include <cuda.h>
#include <dlfcn.h>

/* By dlopen, as the test's program must start without a driver. */
#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, #name))
#define NEEDS_GPU() SKIP_UNLESS(backend() != BACKEND_HOST, "sealed memory of the host can't be changed")

/* One with a lease who does what no worker may. */
struct vandal {
	int sock;
	struct raw_reply reply; /* with the descriptors */
	uint64_t segments;
	uint64_t bytes[PART_SEGMENTS_MAX];
};

static void vandal_begin_on(const struct gpuwmd *d, const char *ref, const char *device, struct vandal *v)
{
	const msgpack_object *segments;
	struct message_writer w;
	struct fields f, segment;
	uint32_t count;

	v->sock = raw_client(d->socket);
	raw_request(&w, 2, "get_handles");
	message_put_text(&w, "ref", ref);
	if (device)
		message_put_text(&w, "device", device);
	raw_send(v->sock, &w);
	cr_assert(raw_receive(v->sock, &v->reply));
	cr_assert_eq(v->reply.message.error.code, 0, "%s", v->reply.message.error.message);
	fields_of(&f, v->reply.message.body);
	segments = fields_array(&f, "segments", &count);
	for (v->segments = 0; v->segments < count; v->segments++) {
		fields_of(&segment, &segments[v->segments]);
		v->bytes[v->segments] = fields_u64(&segment, "bytes");
	}
}

static void vandal_begin(const struct gpuwmd *d, const char *ref, struct vandal *v)
{
	vandal_begin_on(d, ref, NULL, v);
}

static void vandal_end(struct vandal *v)
{
	raw_reply_clear(&v->reply);
	close(v->sock);
}

/* Whoever has the descriptor may map it for writing. */
static void flip(const struct vandal *v, uint64_t number, uint64_t offset, unsigned bit)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
				  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	void *fd = (void *)(uintptr_t)v->reply.packet.fds[number + 1];
	CUmemGenericAllocationHandle handle;
	CUcontext context;
	CUdeviceptr address;
	uint8_t byte;

#define MUST(call) cr_assert_eq(call, CUDA_SUCCESS, "%s", #call)
	cr_assert(driver);
	MUST(DRIVER(cuInit)(0));
	MUST(DRIVER(cuDevicePrimaryCtxRetain)(&context, 0));
	MUST(DRIVER(cuCtxSetCurrent)(context));
	MUST(DRIVER(cuMemImportFromShareableHandle)(&handle, fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	MUST(DRIVER(cuMemAddressReserve)(&address, v->bytes[number], 0, 0, 0));
	MUST(DRIVER(cuMemMap)(address, v->bytes[number], 0, handle, 0));
	MUST(DRIVER(cuMemSetAccess)(address, v->bytes[number], &access, 1));
	MUST(DRIVER(cuMemcpyDtoH_v2)(&byte, address + offset, 1));
	byte ^= (uint8_t)(1u << bit);
	MUST(DRIVER(cuMemcpyHtoD_v2)(address + offset, &byte, 1));
	MUST(DRIVER(cuCtxSynchronize)()); /* a byte of pageable memory may still be on its way */
	MUST(DRIVER(cuMemUnmap)(address, v->bytes[number]));
	MUST(DRIVER(cuMemAddressFree)(address, v->bytes[number]));
	MUST(DRIVER(cuMemRelease)(handle));
	MUST(DRIVER(cuDevicePrimaryCtxRelease_v2)(0));
#undef MUST
}

GPUWMD_TEST_IF(verify, finds_a_bit_that_flipped_anywhere, NEEDS_GPU(), gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	const char *path;
	unsigned seed = 7;

	path = checkpoint_write(d, "v1", SMALL(1));
	for (int i = 0; i < 12; i++) {
		struct vandal vandal;
		uint64_t segment, offset;
		unsigned bit;

		load_version(d, path, "m@v1");
		vandal_begin(d, "m", &vandal);
		segment = (uint64_t)rand_r(&seed) % vandal.segments;
		offset = (uint64_t)rand_r(&seed) % vandal.bytes[segment];
		bit = (unsigned)rand_r(&seed) % 8;
		OK(verify(d, "m"));
		flip(&vandal, segment, offset, bit);
		FAILS(EBADMSG, verify(d, "m"));
		cr_assert(strstr(gpuwm_error()->message, "tensor \"") ||
				  strstr(gpuwm_error()->message, "padding"),
			  "%s", gpuwm_error()->message);
		cr_assert(is_tainted(d, "v1"), "bit %u of byte %ju of segment %ju", bit, offset, segment);
		vandal_end(&vandal);
		DROP(d, "m@v1");
	}
}

/* By legacy CUDA IPC: what was copied is compared with the index too. */
/* A worker that has parked does not notice. */
GPUWMD_TEST_IF(verify, what_is_damaged_on_its_device_comes_back_from_its_host_copy, NEEDS_GPU(),
	       gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct vandal vandal;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	CTL_IS(0, "demote", "m@v1", "--to", "host", "--wait");
	CTL_IS(0, "promote", "m@v1", "--wait");
	OK(gpuwm_attach(client, "m@v1", NULL, &mapping));
	OK(gpuwm_park(mapping, 0));
	vandal_begin(d, "m", &vandal);
	flip(&vandal, 0, 5, 3);
	vandal_end(&vandal);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	CTL_IS(9, "verify", "m", "--wait", "--device", d->device);
	cr_assert(!is_tainted(d, "v1"));
	cr_assert(log_says(d, "its host copy takes its place"));
	OK(gpuwm_unpark(mapping, GPUWM_ROOM_AS_BEFORE, SOON_MS));
	cr_assert(mapping_holds(mapping, 1));
	OK(verify(d, "m"));
	vandal_begin(d, "m", &vandal);
	flip(&vandal, 0, 5, 3);
	FAILS(EBADMSG, verify(d, "m"));
	cr_assert(is_tainted(d, "v1"), "workers have it mapped");
	vandal_end(&vandal);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST_IF(verify, no_copy_is_made_of_what_is_damaged, NEEDS_GPU(), gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;
	struct vandal vandal;

	load_small(d, 1);
	vandal_begin(d, "m", &vandal);
	flip(&vandal, 0, 5, 3);
	options.transport = GPUWM_TRANSPORT_CUDA_IPC;
	FAILS(EIO, gpuwm_attach(d->admin, "m", &options, &mapping));
	cr_assert(strstr(gpuwm_error()->message, "is not what was checked: tensor \""), "%s",
		  gpuwm_error()->message);
	cr_assert(strstr(gpuwm_error()->detail, "gpuwmctl verify"));
	vandal_end(&vandal);
	DROP(d, "m@v1");
}

/* Who has it keeps it, who comes is told, also by the next gpuwmd. */
GPUWMD_TEST_IF(verify, taints_for_good_and_takes_nothing_away, NEEDS_GPU(),
	       gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop_empty)
{
	struct gpuwm_handles *handles;
	struct process worker;
	struct vandal vandal;
	char pid[16];

	load_version(d, checkpoint_write(d, "v0", SMALL(3)), "m@v0");
	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	OK(swap_to(d, "m", "v1", false));
	worker = worker_start(d, "m", 1);
	vandal_begin(d, "m", &vandal);
	flip(&vandal, 0, 0, 3);
	CTL_IS(9, "verify", "m", "--wait");
	SAYS("tainted");
	SAYS("tensor \"layer.000.weight\": the index says digest ");
	SAYS("leases on this version:");
	snprintf(pid, sizeof pid, " %d ", (int)worker.pid);
	SAYS(pid);
	CTL_IS(0, "ls");
	SAYS("ready, tainted");
	SAYS("m@v1 is tainted: tensor \"layer.000.weight\"");
	FAILS(EBADMSG, gpuwm_get_handles(d->admin, "m", NULL, &handles));
	cr_assert(strstr(gpuwm_error()->detail, "gpuwmctl swap m to another version"), "%s",
		  gpuwm_error()->detail);
	CTL_IS(9, "swap", "m@prod", "v1");
	CTL_IS(0, "show", "m");
	SAYS("workers don't get this version: m@v1 is tainted: tensor \"layer.000.weight\"");
	SAYS("TENSOR");
	CTL_IS(0, "-o", "json", "show", "m");
	SAYS("\"refusal\":\"m@v1 is tainted");

	kept_kill(d, SIGKILL);
	cr_assert(is_tainted(d, "v1"));
	FAILS(EBADMSG, gpuwm_get_handles(d->admin, "m", NULL, &handles));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1), "the worker has its lease again");
	flip(&vandal, 0, 0, 3); /* as it was: the worker compares what it reads */
	vandal_end(&vandal);
	OK(verify(d, "m"));
	cr_assert(is_tainted(d, "v1"), "what was damaged once stays so");
	process_tell(&worker, 'd');
	process_finish(&worker);

	CTL_IS(0, "rollback", "m");
	OK(gpuwm_retire(d->admin, "m@v1", 10000));
	DROP(d, "m@v0");
}

/* An operator may come before what is to be looked at has its name. */
GPUWMD_TEST_IF(verify, of_what_is_tainted_can_be_waited_for_to_look_at_it, NEEDS_GPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	struct vandal vandal;
	int admin;

	load_version(d, checkpoint_write(d, "v1", SMALL(1)), "m@v1");
	load_version(d, checkpoint_write(d, "v2", SMALL(3)), "m@v2");
	vandal_begin(d, "m", &vandal);
	flip(&vandal, 0, 0, 3);
	FAILS(EBADMSG, verify(d, "m@v1"));
	admin = raw_client(d->admin_socket);
	RAW_SEND(admin, 2, "get_handles", TEXT("ref", "m@previous"), FLAG("look", true), SIGNED("wait_ms", -1));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	OK(swap_to(d, "m", "v2", false));
	cr_assert_eq(raw_code(admin), 0, "%s", raw_refusal());
	close(admin);
	vandal_end(&vandal);
	OK(gpuwm_retire(d->admin, "m@v1", 10000));
	DROP(d, "m@v2");
}

/* A part that is as it was says nothing of the others. */
GPUWMD_TEST_IF(verify, of_a_sound_part_tells_that_its_version_is_tainted, NEEDS_GPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	const struct gpuwm_device *devices;
	struct vandal vandal;

	SKIP_UNLESS(gpuwm_devices(d->admin, &devices) > 2, "needs two GPUs");
	CTL_IS(0, "load", checkpoint_write(d, "v1", SMALL(1)), "m@v1", "--device", devices[1].id, "--device",
	       devices[2].id, "--wait");
	CTL_IS(0, "verify", "m", "--wait");
	cr_assert(!strstr(output, "tainted"), "%s", output);
	vandal_begin_on(d, "m", devices[1].id, &vandal);
	flip(&vandal, 0, 0, 3);
	CTL_IS(9, "verify", "m", "--wait");
	CTL_IS(0, "verify", "m", "--wait", "--device", devices[2].id);
	SAYS("intact");
	SAYS("m@v1 is still tainted: tensor \"layer.000.weight\"");
	CTL_IS(0, "-o", "json", "verify", "m", "--wait", "--device", devices[2].id);
	SAYS("\"tainted\":{");
	vandal_end(&vandal);
	DROP(d, "m@v1");
}

static void on_event(const struct gpuwm_event *event, void *user_data)
{
	bool *heard = user_data;

	*heard |= strcmp(event->kind, "tainted") == 0 && strcmp(event->model, "m") == 0 &&
		  strstr(event->json, "\"rank\"") && strstr(event->json, "EBADMSG");
}

GPUWMD_TEST_IF(verify, by_the_scrub_finds_damage_and_workers_hear_of_it, NEEDS_GPU(),
	       gpuwmd_start("--set", "scrub.interval=1", "--set", "scrub.duty=50", NULL), gpuwmd_stop_empty)
{
	struct gpuwm_events *events;
	struct vandal vandal;
	bool heard = false;

	load_small(d, 1);
	vandal_begin(d, "m", &vandal);
	OK(gpuwm_events_open(d->admin, UINT64_MAX, &events));
	flip(&vandal, 0, 4096, 0);
	cr_assert(EVENTUALLY(20000, is_tainted(d, "v1")));
	while (!heard)
		OK(gpuwm_events_dispatch(events, 5000, on_event, &heard));
	gpuwm_events_close(events);
	cr_assert(log_says(d, "m@v1 is tainted on "));
	vandal_end(&vandal);
	DROP(d, "m@v1");
}

/* ---- damage of what versions share ------------------------------------- */

static void load_sharing(struct gpuwmd *d, const char *name, uint64_t seed, const char *with)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;

	options.source = checkpoint_write(d, strchr(name, '@') + 1, LARGE(seed));
	options.name = name;
	options.share_with = with;
	options.segment_bytes = MB(4); /* each of the large tensors has one */
	OK(load_on_device(d, options, &job));
	OK(gpuwm_job_wait(d->admin, job, 60000));
}

GPUWMD_TEST_IF(verify, taints_all_versions_that_share_what_is_damaged, NEEDS_GPU(),
	       gpuwmd_start_kept(&(struct kept){.limits = LIMITS_SHORT}), gpuwmd_stop_empty)
{
	struct vandal vandal;

	load_sharing(d, "m@v1", 1, NULL);
	load_sharing(d, "m@v2", 1, "m@v1");
	load_sharing(d, "m@v3", 1, NULL);
	vandal_begin(d, "m@v1", &vandal);
	flip(&vandal, 7, 100, 3);
	FAILS(EBADMSG, verify(d, "m@v2"));
	cr_assert(is_tainted(d, "v1") && is_tainted(d, "v2") && !is_tainted(d, "v3"));
	cr_assert_eq(CTL("ls"), 0);
	SAYS("m@v2 is tainted: tensor \"layer.007.weight\"");
	SAYS("m@v1 is tainted: segment 7, which it shares with m@v2, is damaged: tensor \"layer.007.weight\"");
	kept_kill(d, SIGKILL);
	cr_assert(is_tainted(d, "v1") && is_tainted(d, "v2") && !is_tainted(d, "v3"));
	vandal_end(&vandal);
	version_drop(d, "m", "v1");
	version_drop(d, "m", "v2");
	version_drop(d, "m", "v3");
}

/* What only one of them has does not concern the other. */
GPUWMD_TEST_IF(verify, does_not_taint_who_shares_something_else, NEEDS_GPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	struct vandal vandal;

	load_sharing(d, "m@v1", 1, NULL);
	load_sharing(d, "m@v2", 2, "m@v1"); /* the empty tensor aside, nothing is equal */
	vandal_begin(d, "m@v1", &vandal);
	flip(&vandal, 0, 0, 0);
	FAILS(EBADMSG, verify(d, "m@v1"));
	cr_assert(is_tainted(d, "v1") && !is_tainted(d, "v2"));
	vandal_end(&vandal);
	version_drop(d, "m", "v1");
	version_drop(d, "m", "v2");
}

/* Its digests are those of the load, but its bytes are not. */
GPUWMD_TEST_IF(verify, is_what_a_load_does_with_what_it_shares, NEEDS_GPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	struct vandal vandal;

	load_sharing(d, "m@v1", 1, NULL);
	vandal_begin(d, "m@v1", &vandal);
	flip(&vandal, 7, MB(4) - 1, 7);
	load_sharing(d, "m@v2", 1, "m@v1");
	cr_assert_eq(CTL("jobs", "2"), 0);
	SAYS("shares 16 of its 17 segments with m@v1");
	SAYS("segment 7 of m@v1 has the digests of this load, but other bytes: it is damaged");
	OK(verify(d, "m@v2"));
	FAILS(EBADMSG, verify(d, "m@v1"));
	cr_assert(is_tainted(d, "v1") && !is_tainted(d, "v2"));
	vandal_end(&vandal);
	version_drop(d, "m", "v1");
	OK(verify(d, "m@v2"));
	version_drop(d, "m", "v2");
}

/* A version that comes back to share it again finds the damage, and gets memory of its own the next time. */
GPUWMD_TEST_IF(verify, is_what_a_move_does_with_what_it_shares_again, NEEDS_GPU(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX], bytes;
	struct vandal vandal;
	size_t count;

	load_sharing(d, "m@v1", 1, NULL);
	load_sharing(d, "m@v2", 1, "m@v1");
	bytes = status_of(d, "bytes");
	OK(gpuwm_demote(d->admin, "m@v2", "host", jobs, &count));
	OK(gpuwm_job_wait(d->admin, jobs[0], 30000));
	vandal_begin(d, "m@v1", &vandal);
	flip(&vandal, 7, 100, 3);
	OK(gpuwm_promote(d->admin, "m@v2", jobs, &count));
	FAILS(EIO, gpuwm_job_wait(d->admin, jobs[0], 30000));
	cr_assert(is_tainted(d, "v1") && !is_tainted(d, "v2"));
	cr_assert_eq(CTL("ls"), 0);
	SAYS("m@v1 is tainted: found by the move of m@v2: segment 7, which it was to share on ");
	OK(gpuwm_promote(d->admin, "m@v2", jobs, &count));
	OK(gpuwm_job_wait(d->admin, jobs[0], 30000));
	OK(verify(d, "m@v2"));
	cr_assert_eq(status_of(d, "bytes"), 3 * bytes, "memory of both, and the host copy that v2 keeps");
	vandal_end(&vandal);
	version_drop(d, "m", "v1");
	version_drop(d, "m", "v2");
}

#endif
