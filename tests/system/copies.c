/* Copies by legacy CUDA IPC: made, shared by a user's processes, and gone with their holders. */
#include "copies_peer.h"
#include "user.h"

#ifdef GPUWM_CUDA
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(copies);

static struct gpuwmd *scene_of(struct gpuwmd *d)
{
	load_small(d, 1);
	return d;
}

#define scene_with(...) scene_of(gpuwmd_start(__VA_ARGS__, NULL))
#define scene(...) scene_with(__VA_ARGS__)

/* ---- made and shared -------------------------------------------------- */

FAKECUDA_TEST(copies, two_peers_of_a_user_share_one_and_it_ends_with_the_last, scene(AT_ONCE),
	      gpuwmd_stop_empty)
{
	uint64_t before = device_used(d), bytes;
	struct process one = peer_of(d), two = peer_of(d);

	cr_expect_eq(status_of(d, "copies"), 1);
	bytes = status_of(d, "copy_bytes");
	cr_expect_gt(bytes, 0);
	cr_expect_geq(device_used(d), before + bytes, "its bytes are charged, and the context");
	cr_expect_eq(copy_number(d, "leases"), 2);
	cr_expect_eq(peer_answers(&one, 'r'), 'k');
	peer_end(&one);
	cr_expect_eq(peer_answers(&two, 'r'), 'k');
	cr_expect_eq(status_of(d, "copies"), 1);
	peer_end(&two);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0));
	cr_assert(EVENTUALLY(SOON_MS, device_used(d) == before), "its bytes are free again");
	DROP(d, "m@v1");
}

FAKECUDA_TEST(copies, one_that_is_idle_is_found_again_and_goes_with_its_version, scene_of(gpuwmd_start(NULL)),
	      gpuwmd_stop_empty)
{
	struct process one = peer_of(d);
	pid_t first = copy_holder(d);

	peer_end(&one);
	one = peer_of(d);
	cr_expect_eq(copy_holder(d), first);
	peer_end(&one);
	cr_assert_eq(status_of(d, "copies"), 1);
	DROP(d, "m@v1");
	cr_assert_eq(status_of(d, "copies"), 0);
}

/* ---- a program without gpuwm ------------------------------------------ */

#define DRIVER(name) ((__typeof__(name) *)dlsym(driver, name))
#define CALL(function, ...)                                                                                    \
	CHILD_ASSERT(((__typeof__(function) *)dlsym(driver, #function))(__VA_ARGS__) == CUDA_SUCCESS)

static void from_hex(const char *text, void *to)
{
	unsigned char *bytes = to;

	for (size_t i = 0; i < GPUWM_IPC_HANDLE_BYTES; i++) {
		unsigned byte;

		CHILD_ASSERT(sscanf(text + 2 * i, "%2x", &byte) == 1);
		bytes[i] = (unsigned char)byte;
	}
}

/* argv: a handle, an event, an offset, bytes (of F32), and a uid to become. Reads them with the driver alone and compares them with
 * layer.000.weight of the checkpoint 1. The driver opens events for the holder's user only, and memory for all. */
static int stranger(int argc, char **argv)
{
	void *driver = dlopen("libcuda.so.1", RTLD_NOW);
	const size_t bytes = strtoull(argv[3], NULL, 10), offset = strtoull(argv[2], NULL, 10);
	char *content = malloc(bytes), *found = malloc(bytes);
	const uid_t holders = geteuid(), uid = (uid_t)atoi(argv[4]);
	CUipcEventHandle event_handle;
	CUipcMemHandle handle;
	CUdeviceptr address;
	CUcontext context;
	CUresult opened;
	CUevent event;

	CHILD_ASSERT(argc == 5 && driver && content && found);
	from_hex(argv[0], &handle);
	from_hex(argv[1], &event_handle);
	if (uid != geteuid())
		CHILD_ASSERT(setresuid(uid, uid, uid) == 0);
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuCtxPushCurrent_v2, context);
	opened = ((__typeof__(cuIpcOpenEventHandle) *)dlsym(driver, "cuIpcOpenEventHandle"))(&event,
											     event_handle);
	CHILD_ASSERT(opened == (uid == holders ? CUDA_SUCCESS : CUDA_ERROR_MAP_FAILED));
	if (opened == CUDA_SUCCESS)
		CALL(cuEventSynchronize, event);
	CALL(cuIpcOpenMemHandle_v2, &address, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	CALL(cuMemcpyDtoH_v2, found, address + offset, bytes);
	CALL(cuIpcCloseMemHandle, address);
	content_fill(1, "layer.000.weight", 0, content, bytes);
	CHILD_ASSERT(memcmp(content, found, bytes) == 0);
	free(content);
	free(found);
	return 0;
}

static void to_hex(const unsigned char handle[GPUWM_IPC_HANDLE_BYTES],
		   char text[2 * GPUWM_IPC_HANDLE_BYTES + 1])
{
	for (size_t i = 0; i < GPUWM_IPC_HANDLE_BYTES; i++)
		snprintf(text + 2 * i, 3, "%02x", handle[i]);
}

static struct gpuwm_tensor tensor_named(const struct gpuwm_handles *handles, const char *name)
{
	struct gpuwm_tensor tensor = {0};

	for (uint64_t i = 0; i < gpuwm_handles_tensor_count(handles); i++) {
		OK(gpuwm_handles_tensor_at(handles, i, &tensor));
		if (strcmp(tensor.name, name) == 0)
			return tensor;
	}
	cr_assert_fail("no tensor %s", name);
	return tensor;
}

FAKECUDA_TEST(copies, raw_handles_are_opened_by_a_program_without_gpuwm, scene(AT_ONCE), gpuwmd_stop_empty)
{
	struct gpuwm_attach_options options = by_copy(d);
	unsigned char handle[GPUWM_IPC_HANDLE_BYTES], event[GPUWM_IPC_HANDLE_BYTES];
	char handle_text[2 * GPUWM_IPC_HANDLE_BYTES + 1], event_text[sizeof handle_text], offset[24], bytes[24],
		uid[16];
	struct gpuwm_handles *handles;
	struct gpuwm_tensor tensor;
	struct process p;
	uint64_t pid, size;

	OK(gpuwm_get_handles(d->admin, "m@v1", &options, &handles));
	tensor = tensor_named(handles, "layer.000.weight");
	OK(gpuwm_handles_ipc_segment(handles, tensor.segment, handle, &size));
	OK(gpuwm_handles_ipc_event(handles, event, &pid));
	cr_expect_eq((pid_t)pid, copy_holder(d));
	cr_expect_leq(tensor.offset + tensor.bytes, size);
	FAILS(ERANGE, gpuwm_handles_ipc_segment(handles, 9, handle, NULL));
	FAILS(ENOTSUP, gpuwm_handles_segment(handles, 0, NULL));
	to_hex(handle, handle_text);
	to_hex(event, event_text);
	snprintf(offset, sizeof offset, "%llu", (unsigned long long)tensor.offset);
	snprintf(bytes, sizeof bytes, "%llu", (unsigned long long)tensor.bytes);
	snprintf(uid, sizeof uid, "%u", geteuid());
	p = process_start(stranger, handle_text, event_text, offset, bytes, uid, NULL);
	process_finish(&p);
	p = process_start(stranger, handle_text, event_text, offset, bytes, geteuid() == 0 ? "61001" : uid,
			  NULL);
	process_finish(&p);
	OK(gpuwm_handles_release(handles));
	options.transport = GPUWM_TRANSPORT_FD;
	OK(gpuwm_get_handles(d->admin, "m@v1", &options, &handles));
	FAILS(ENOTSUP, gpuwm_handles_ipc_segment(handles, 0, handle, NULL));
	FAILS(ENOTSUP, gpuwm_handles_ipc_event(handles, event, NULL));
	OK(gpuwm_handles_release(handles));
	DROP(d, "m@v1");
}

/* ---- what can't be had ------------------------------------------------- */

Test(copies, what_does_not_go_by_handles_is_named)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	struct gpuwm_attach_options options = by_copy(d);
	const char *peers[] = {d->device};
	struct gpuwm_mapping *mapping;

	load_small(d, 1);
	options.address = (void *)MB(2);
	FAILS(ENOTSUP, gpuwm_attach(d->admin, "m@v1", &options, &mapping));
	cr_expect(strstr(gpuwm_error()->message, "address"));
	options.address = NULL;
	options.peers = peers;
	options.peer_count = 1;
	FAILS(ENOTSUP, gpuwm_attach(d->admin, "m@v1", &options, &mapping));
	cr_expect(strstr(gpuwm_error()->message, "peers"));
	options.peer_count = 0;
	FAILS(ENOTSUP, gpuwm_claim(d->admin, "m@v1", &options, &mapping));
	options.transport = 7;
	FAILS(EINVAL, gpuwm_attach(d->admin, "m@v1", &options, &mapping));
	options = by_copy(d);
	if (backend() == BACKEND_HOST) {
		FAILS(ENOTSUP, gpuwm_attach(d->admin, "m@v1", &options, &mapping));
		cr_expect(strstr(gpuwm_error()->message, "host is no GPU"), "%s", gpuwm_error()->message);
	} else {
		OK(gpuwm_attach(d->admin, "m@v1", &options, &mapping));
		cr_expect_null(gpuwm_mapping_address(mapping, NULL));
		FAILS(ENOTSUP, gpuwm_switch(mapping, "m@v1", NULL));
		cr_expect(strstr(gpuwm_error()->message, "cuda_ipc"));
		OK(gpuwm_detach(mapping));
	}
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

/* ---- limits ------------------------------------------------------------- */

/* The bytes of the versions are small beside those of contexts (500 MiB): in 1,100 MiB there is room for two contexts and little more. */
#define NARROW "--set", "budget.*=1100M"
#define FILLING (&(const struct checkpoint){.seed = 2, .count = 16, .bytes = MB(4)})

FAKECUDA_TEST(copies, an_idle_one_makes_room_and_one_that_is_used_does_not, scene(NARROW), gpuwmd_stop_empty)
{
	struct process one = peer_of(d);

	FAILS(ENOSPC, publish_version(d->admin, d->device, "n@v1", FILLING));
	cr_expect_eq(peer_answers(&one, 'r'), 'k');
	peer_end(&one);
	cr_expect_eq(status_of(d, "copies"), 1);
	OK(publish_version(d->admin, d->device, "n@v1", FILLING));
	cr_expect_eq(status_of(d, "copies"), 0);
	DROP(d, "n@v1", "m@v1");
}

/* Whether `list` tells that m@TAG had a lease that ended. */
static bool was_used(const struct gpuwmd *d, const char *tag)
{
	json_t *list = query(d->admin, "list", "m"), *version;
	bool used = false;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(json_string_value(json_object_get(version, "tag")), tag) == 0)
			used = json_object_get(version, "last_used_ms");
	}
	json_decref(list);
	return used;
}

FAKECUDA_TEST(copies, what_does_not_fit_is_refused_with_what_is_left, scene(NARROW), gpuwmd_stop_empty)
{
	struct gpuwm_attach_options options = by_copy(d);
	struct gpuwm_mapping *first, *second;

	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	OK(gpuwm_attach(d->admin, "m@v1", &options, &first));
	FAILS(ENOSPC, gpuwm_attach(d->admin, "m@v2", &options, &second));
	cr_expect(strstr(gpuwm_error()->message, "no room on"), "%s", gpuwm_error()->message);
	cr_expect(!was_used(d, "v2"), "who got nothing did not use it");
	OK(gpuwm_detach(first));
	cr_expect(was_used(d, "v1"));
	DROP(d, "m@v2", "m@v1");
}

FAKECUDA_TEST(copies, a_user_has_as_many_as_it_may, scene("--set", "limits.copies_per_uid=1"),
	      gpuwmd_stop_empty)
{
	struct gpuwm_attach_options options = by_copy(d);
	struct gpuwm_mapping *first, *second;

	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	OK(gpuwm_attach(d->admin, "m@v1", &options, &first));
	FAILS(EDQUOT, gpuwm_attach(d->admin, "m@v2", &options, &second));
	cr_expect(strstr(gpuwm_error()->detail, "copies_per_uid"), "%s", gpuwm_error()->detail);
	OK(gpuwm_attach(d->admin, "m@v1", &options, &second));
	OK(gpuwm_detach(first));
	OK(gpuwm_detach(second));
	DROP(d, "m@v2", "m@v1");
}

/* Attaches, and detaches at once: the copy is idle then. */
static bool copies_once(const struct gpuwmd *d, const char *ref)
{
	struct gpuwm_attach_options options = by_copy(d);
	struct gpuwm_mapping *mapping;

	if (gpuwm_attach(d->admin, ref, &options, &mapping) < 0)
		return false;
	OK(gpuwm_detach(mapping));
	return true;
}

FAKECUDA_TEST(copies, an_idle_one_is_not_in_the_way_of_the_next, scene("--set", "limits.copies_per_uid=1"),
	      gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_expect(copies_once(d, "m@v1"));
	cr_expect(copies_once(d, "m@v2"), "%s", gpuwm_error()->message);
	cr_expect_eq(status_of(d, "copies"), 1);
	DROP(d, "m@v2", "m@v1");
}

FAKECUDA_TEST(copies, an_idle_one_gives_its_room_to_the_next, scene(NARROW, "--set", "loader.keep_copy=3600"),
	      gpuwmd_stop_empty)
{
	load_version(d, checkpoint_write(d, "v2", SMALL(2)), "m@v2");
	cr_expect(copies_once(d, "m@v1"));
	cr_expect(EVENTUALLY(SOON_MS, copies_once(d, "m@v2")), "%s", gpuwm_error()->message);
	DROP(d, "m@v2", "m@v1");
}

FAKECUDA_TEST(copies, each_user_has_its_own_and_rules_hold,
	      scene_with(AT_ONCE, "--set", "socket.mode=0666", "--set", "model.1.match=*", "--set",
			 "model.1.attach=61001"),
	      gpuwmd_stop)
{
	struct process one = peer_of(d), alice, bob;
	pid_t first = copy_holder(d);

	NEEDS_ROOT();
	alice = user_start(ALICE);
	bob = user_start(BOB);
	DOES(&alice, "copy m@v1");
	cr_expect_eq(status_of(d, "copies"), 2);
	cr_expect_neq(copy_holder(d), first);
	REFUSED(ENOENT, &bob, "copy m@v1");
	user_end(&alice);
	user_end(&bob);
	peer_end(&one);
}

/* ---- making one fails ----------------------------------------------------- */

/* In loaders that begin from now on. */
static struct gpuwmd *scene_where(const char *variable, const char *value)
{
	struct gpuwmd *d;

	setenv(variable, value, 1);
	setenv("FAKECUDA_FAIL_ONLY", "gpuwm-loader", 1);
	d = scene(AT_ONCE);
	unsetenv(variable);
	unsetenv("FAKECUDA_FAIL_ONLY");
	return d;
}

FAKECUDA_TEST(copies, a_driver_without_ipc_is_an_error_that_says_so,
	      scene_where("FAKECUDA_FAIL", "cuIpcGetMemHandle:0:801"), gpuwmd_stop_empty)
{
	struct gpuwm_attach_options options = by_copy(d);
	struct gpuwm_mapping *mapping;

	FAILS(ENOTSUP, gpuwm_attach(d->admin, "m@v1", &options, &mapping));
	cr_expect(strstr(gpuwm_error()->message, "no legacy CUDA IPC"), "%s", gpuwm_error()->message);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0 && status_of(d, "leases") == 0));
	DROP(d, "m@v1");
}

#define HANGS scene_where("FAKECUDA_HANG", "cuIpcGetMemHandle:1")

static uint64_t hold_job(struct gpuwmd *d)
{
	json_t *jobs = query(d->admin, "jobs", NULL), *job;
	uint64_t number = 0;
	size_t i;

	json_array_foreach(json_object_get(jobs, "jobs"), i, job) {
		if (strcmp(json_string_value(json_object_get(job, "kind")), "hold") == 0 &&
		    strcmp(json_string_value(json_object_get(job, "phase")), "allocating") == 0)
			number = (uint64_t)json_integer_value(json_object_get(job, "job"));
	}
	json_decref(jobs);
	return number;
}

FAKECUDA_TEST(copies, one_whose_job_is_cancelled_is_not_made, HANGS, gpuwmd_stop_empty)
{
	struct process one = peer_start(d), two = peer_start(d);
	uint64_t job = 0;

	cr_assert(EVENTUALLY(SOON_MS, (job = hold_job(d)) > 0 && status_of(d, "leases") == 2));
	OK(gpuwm_job_cancel(d->admin, job));
	process_expect(&one, 'f');
	process_expect(&two, 'f');
	process_finish(&one);
	process_finish(&two);
	cr_expect_eq(status_of(d, "copies"), 0);
	DROP(d, "m@v1");
}

FAKECUDA_TEST(copies, one_that_nobody_waits_for_any_more_is_not_made, HANGS, gpuwmd_stop_empty)
{
	struct process one = peer_start(d);

	cr_assert(EVENTUALLY(SOON_MS, hold_job(d) > 0));
	process_kill(&one, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0 && status_of(d, "jobs_running") == 0));
	DROP(d, "m@v1");
}

FAKECUDA_TEST(copies, a_lease_that_is_kicked_while_its_copy_is_made_is_refused, HANGS, gpuwmd_stop_empty)
{
	struct process one = peer_start(d);
	char number[24];

	cr_assert(EVENTUALLY(SOON_MS, hold_job(d) > 0));
	snprintf(number, sizeof number, "%d", (int)one.pid);
	CTL_IS(0, "kick", "--pid", number);
	process_expect(&one, 'f');
	process_finish(&one);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0 && status_of(d, "revoked") == 0));
	DROP(d, "m@v1");
}

/* ---- gpuwmctl --------------------------------------------------------------- */

FAKECUDA_TEST(copies, gpuwmctl_shows_them_and_prints_handles_as_long_as_it_runs, scene(AT_ONCE),
	      gpuwmd_stop_empty)
{
	struct ctl_run run = ctl_start("handles", "m@v1", "--transport", "cuda_ipc", "-o", "json", NULL);
	json_t *copy;

	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 1 && copy_number(d, "pid") > 0));
	CTL_IS(0, "ls");
	SAYS("m@v1 has a copy of ");
	SAYS("it dies with gpuwm-loader");
	CTL_IS(0, "status");
	SAYS("1 copy by CUDA IPC takes ");
	CTL_IS(0, "ps");
	SAYS("held, copy");
	CTL_IS(0, "jobs");
	SAYS("hold");
	cr_assert_eq(kill(run.pid, SIGTERM), 0);
	ctl_ends(&run, 0);
	copy = json_loads(output, 0, NULL);
	cr_assert_not_null(copy, "%s", output);
	cr_expect_str_eq(json_string_value(json_object_get(copy, "transport")), "cuda_ipc");
	cr_expect_eq(strlen(json_string_value(
			     json_object_get(json_array_get(json_object_get(copy, "segments"), 0), "handle"))),
		     2 * GPUWM_IPC_HANDLE_BYTES);
	cr_expect_eq(json_array_size(json_object_get(copy, "tensors")), 9);
	json_decref(copy);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "copies") == 0));
	CTL_IS(2, "handles", "m@v1");
	CTL_IS(2, "handles", "m@v1", "--transport", "fd");
	CTL_IS(2, "handles", "m@v1", "--transport", "fabric");
	SAYS("fabric");
	DROP(d, "m@v1");
}
#endif
