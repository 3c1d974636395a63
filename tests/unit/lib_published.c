/* Commits after which the publisher's own memory is the version's: on host, and on the stand-in for a GPU. */
#include "tests/support/lib/both.h"
#include "tests/support/lib/published.h"
#include "tests/support/any/child.h"

#include "tests/support/fail_alloc.h"

#include <errno.h>
#include <sys/mman.h>

static void start_host(void)
{
	published_start_on("host");
}

TestSuite(published_host, .init = start_host, .fini = published_stop, .timeout = 120);

#ifdef GPUWM_CUDA

TestSuite(published_cuda, .init = published_start_cuda, .fini = published_stop, .timeout = 120);
#endif

/* ---- done ---------------------------------------------------------------- */

TestBoth(published, keeps_addresses_and_bytes)
{
	struct gpuwm_publish *publish = begin(false);
	struct gpuwm_mapping *mapping = NULL;
	struct gpuwm_tensor tensor;
	void *places[TENSORS];

	for (size_t i = 0; i < TENSORS; i++) {
		fill(publish, i);
		cr_assert(eq(int, gpuwm_publish_memory(publish, i, &places[i], NULL), 0));
		cr_assert(can_write(places[i]));
	}
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(u64, gpuwm_tensor_count(mapping), TENSORS));
	for (size_t i = 0; i < TENSORS; i++) {
		cr_assert(eq(int, gpuwm_tensor_find(mapping, specs[i].name, &tensor), 0));
		cr_assert(tensor.data == places[i]);
		cr_assert(holds(tensor.data, i));
		cr_assert(not(can_write(places[i])));
	}
	cr_assert(eq(str, (char *)gpuwm_mapping_version(mapping)->id, FAKE_VERSION));
	cr_assert(eq(uint, gpuwm_mapping_version(mapping)->segments, 2));
	cr_assert(eq(uint, leases(), 1));
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(not(can_read(places[0])));
	cr_assert(eq(uint, leases(), 0));
}

TestBoth(published, exports_hold_the_mapping)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;

	expect_exports(exports, true);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0), "%s", gpuwm_error()->message);
	expect_exports(exports, false);
	cr_assert(eq(u64, gpuwm_mapping_exports(mapping), TENSORS));
	cr_assert(eq(int, gpuwm_detach(mapping), -EBUSY));
	gpuwm_drop(mapping);
	expect_exports(exports, false);
	cr_assert(eq(uint, leases(), 1));
	free_exports(exports);
	UNTIL(leases() == 0);
}

TestBoth(published, tell_their_dtype_shape_and_strides)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	const DLTensor *c = &exports[0]->dl_tensor;
	struct DLManagedTensorVersioned *versioned = NULL;
	struct DLManagedTensor *none = NULL;
	void *place;

	cr_assert(eq(int, gpuwm_publish_memory(publish, 0, &place, NULL), 0));
	cr_assert(c->data == place);
	cr_assert(eq(int, c->dtype.code, kDLFloat));
	cr_assert(eq(int, c->dtype.bits, 16));
	cr_assert(eq(int, c->ndim, 2));
	cr_assert(eq(i64, c->shape[0], 3));
	cr_assert(eq(i64, c->shape[1], 64));
	cr_assert(eq(i64, c->strides[0], 64));
	cr_assert(eq(i64, c->strides[1], 1));
	cr_assert(eq(int, c->device.device_type, strcmp(fake->device, "host") ? kDLCUDA : kDLCPU));
	cr_assert(eq(int, gpuwm_publish_dlpack_versioned(publish, 0, &versioned), 0));
	cr_assert(eq(u64, versioned->flags, 0));
	cr_assert(versioned->dl_tensor.data == place);
	versioned->deleter(versioned);
	cr_assert(eq(int, gpuwm_publish_dlpack(publish, TENSORS, &none), -ERANGE));
	cr_assert(none == NULL);
	free_exports(exports);
	cr_assert(eq(int, gpuwm_publish_abort(publish, NULL), 0));
}

TestBoth(published, another_attach_shares_it)
{
	struct gpuwm_publish *publish = begin(true);
	struct gpuwm_mapping *mapping = NULL, *other = NULL;

	fill(publish, 1);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_attach(client, FAKE_VERSION, NULL, &other), 0), "%s", gpuwm_error()->message);
	cr_assert(gpuwm_mapping_address(other, NULL) == gpuwm_mapping_address(mapping, NULL));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(can_read((void *)gpuwm_mapping_address(other, NULL)));
	cr_assert(eq(int, gpuwm_detach(other), 0));
}

TestBoth(published, tells_that_the_alias_stayed)
{
	struct gpuwm_publish *publish = begin(true);
	struct gpuwm_mapping *mapping = NULL;

	fake->alias_error = true;
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 1));
	cr_assert(strstr(gpuwm_error()->message, "is a tag") != NULL, "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

TestBoth(published, may_be_of_nothing)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;
	struct gpuwm_mapping *mapping = NULL;

	options.name = "m@v1";
	options.device = fake->device;
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, NULL, 0, &publish), 0));
	cr_assert(eq(int, gpuwm_publish_order(publish, NULL), 0));
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(u64, gpuwm_tensor_count(mapping), 0));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

/* EBUSY would say that the publish goes on. */
TestBoth(published, is_not_busy_when_gpuwmd_says_so)
{
	struct gpuwm_publish *publish = begin(true);

	refuses("publish_commit", -EBUSY, NULL);
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), -EIO));
	cr_assert(eq(int, gpuwm_error()->code, -EIO));
}

/* ---- a version without a lease ------------------------------------------- */

TestBoth(published, goes_on_without_a_lease)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;

	refuses("get_handles", -EDQUOT, NULL);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 2));
	cr_assert(eq(int, gpuwm_error()->code, -EDQUOT));
	cr_assert(strstr(gpuwm_error()->message, "m@v1 is ready and mapped, but without a lease") != NULL, "%s",
		  gpuwm_error()->message);
	expect_exports(exports, false);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), -EDQUOT));
	cr_assert(eq(uint, leases(), 0));
	*fake->refuse = '\0';
	cr_assert(eq(int, gpuwm_switch(mapping, FAKE_VERSION, NULL), 0), "%s", gpuwm_error()->message);
	cr_assert(eq(int, gpuwm_mapping_check(mapping), 0));
	cr_assert(eq(uint, leases(), 1));
	expect_exports(exports, false);
	free_exports(exports);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

TestBoth(published, gives_up_what_has_no_lease)
{
	struct gpuwm_publish *publish = begin(true);
	struct gpuwm_mapping *mapping = NULL;

	refuses("get_handles", -EDQUOT, NULL);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 2));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->releases, 0));
}

/* ---- failures ------------------------------------------------------------ */

/* What exports use stays the process's own; nothing else is left. */
static void fails_with(int code, bool writable)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;
	void *place = exports[0]->dl_tensor.data;

	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), code), "%s",
		  gpuwm_error()->message);
	cr_assert(mapping == NULL);
	expect_exports(exports, writable);
	cr_assert(eq(uint, leases(), 0));
	free_exports(exports);
	UNTIL(!can_read(place));
}

TestBoth(published, is_refused_by_the_checker)
{
	refuses("hand_in", -EBADMSG, NULL);
	fails_with(-EBADMSG, true);
	cr_assert(strstr(fake->reason, "hand_in is refused") != NULL, "%s", fake->reason);
	cr_assert(eq(uint, fake->aborts, 1));
}

TestBoth(published, is_refused_by_gpuwmd)
{
	refuses("publish_commit", -EBADMSG, NULL);
	fails_with(-EBADMSG, true);
}

TestBoth(published, is_forgotten_in_a_restart)
{
	strcpy(fake->dies_at, "publish_commit");
	fake->deaths = 1;
	fake->forgetful = true;
	error_set(&fake->refusal, -ENOENT, NULL, "there is no such publish");
	fails_with(-ECANCELED, true);
}

/* A version may come of it: on a GPU nobody writes into it. */
TestBoth(published, may_have_become_a_version)
{
	refuses("publish_commit", -ETIMEDOUT, NULL);
	fails_with(-ETIMEDOUT, strcmp(fake->device, "host") == 0);
}

TestBoth(published, loses_its_memory_without_exports)
{
	struct gpuwm_publish *publish = begin(true);
	struct gpuwm_mapping *mapping = NULL;
	void *place;

	cr_assert(eq(int, gpuwm_publish_memory(publish, 0, &place, NULL), 0));
	refuses("publish_commit", -EBADMSG, NULL);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), -EBADMSG));
	cr_assert(not(can_read(place)));
	cr_assert(eq(int, gpuwm_publish_commit_attached(NULL, &mapping), -EINVAL));
}

TestBoth(published, leaves_exports_their_memory_when_aborted)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	void *place = exports[0]->dl_tensor.data;

	cr_assert(eq(int, gpuwm_publish_abort(publish, "enough"), 0));
	expect_exports(exports, true);
	free_exports(exports);
	UNTIL(!can_read(place));
}

/* Only some segments are there. */
TestBoth(published, leaves_one_export_its_memory_when_aborted)
{
	struct gpuwm_publish *publish = begin(true);
	struct DLManagedTensor *export = NULL;
	void *place;

	cr_assert(eq(int, gpuwm_publish_dlpack(publish, 0, &export), 0));
	fill(publish, 0);
	place = export->dl_tensor.data;
	cr_assert(eq(int, gpuwm_publish_abort(publish, "enough"), 0));
	cr_assert(holds(place, 0));
	cr_assert(can_write(place));
	export->deleter(export);
	UNTIL(!can_read(place));
}

TestBoth(published, leaves_exports_their_memory_after_a_plain_commit)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	void *place = exports[0]->dl_tensor.data;

	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0), "%s", gpuwm_error()->message);
	expect_exports(exports, false);
	cr_assert(eq(uint, leases(), 0));
	free_exports(exports);
	UNTIL(!can_read(place));
}

TestBoth(published, leaves_exports_their_memory_after_a_plain_commit_that_failed)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);

	refuses("publish_commit", -EBADMSG, NULL);
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), -EBADMSG));
	expect_exports(exports, true);
	free_exports(exports);
}

/* ---- while it runs --------------------------------------------------------- */

static struct gpuwm_mapping *committed;

static void *commit_in_thread(void *publish)
{
	return (void *)(intptr_t)gpuwm_publish_commit_attached(publish, &committed);
}

TestBoth(published, can_be_read_while_it_is_checked)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	pthread_t thread;
	void *r;

	strcpy(fake->pauses_at, "publish_commit");
	cr_assert(eq(int, pthread_create(&thread, NULL, commit_in_thread, publish), 0));
	sem_wait(&fake->paused);
	expect_exports(exports, false);
	sem_post(&fake->go);
	pthread_join(thread, &r);
	cr_assert(eq(int, (int)(intptr_t)r, 0));
	free_exports(exports);
	cr_assert(eq(int, gpuwm_detach(committed), 0));
}

/* A segment's memfd, as somebody of this process finds it. */
static int segment_fd(void)
{
	char target[64];

	for (int fd = 3; fd < 100; fd++) {
		char path[64];
		ssize_t length;

		snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
		length = readlink(path, target, sizeof target - 1);
		if (length < 0)
			continue;
		target[length] = '\0';
		if (strstr(target, "memfd:gpuwm-segment"))
			return fd;
	}
	return -1;
}

Test(published_host, can_not_be_sealed_while_others_may_write)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;
	void *writer = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, segment_fd(), 0);

	cr_assert(writer != MAP_FAILED);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), -EIO));
	cr_assert(strstr(gpuwm_error()->detail, "end every mapping") != NULL, "%s", gpuwm_error()->detail);
	cr_assert(eq(uint, fake->aborts, 1));
	expect_exports(exports, true);
	free_exports(exports);
	munmap(writer, 4096);
}

/* ---- fork ---------------------------------------------------------------- */

static int child_of(struct gpuwm_publish *publish, struct gpuwm_mapping *mapping,
		    struct DLManagedTensor *const exports[TENSORS])
{
	struct DLManagedTensor *export = NULL;

	for (size_t i = 0; i < TENSORS; i++) {
		if (!holds(exports[i]->dl_tensor.data, i))
			return 1;
	}
	if (publish && (gpuwm_publish_commit_attached(publish, &mapping) != -ECHILD ||
			gpuwm_publish_dlpack(publish, 0, &export) != -ECHILD))
		return 2;
	if (mapping && (gpuwm_mapping_check(mapping) != -ECHILD || gpuwm_detach(mapping) != -ECHILD))
		return 3;
	if (fake_segments_held() > 0)
		return 4;
	free_exports(exports);
	gpuwm_drop(mapping);
	return 0;
}

Test(published_host, a_child_reads_what_was_published)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0));
	/* Those that the fake got. */
	for (size_t i = 0; i < fake->fd_count; i++)
		close(fake->fds[i]);
	fake->fd_count = 0;
	UNTIL(fake_segments_held() == 2);
	cr_assert(eq(int, IN_CHILD(child_of(NULL, mapping, exports)), 0));
	expect_exports(exports, false);
	cr_assert(eq(uint, leases(), 1));
	free_exports(exports);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(published_host, a_child_reads_what_was_aborted)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);

	cr_assert(eq(int, gpuwm_publish_abort(publish, NULL), 0));
	cr_assert(eq(int, IN_CHILD(child_of(NULL, NULL, exports)), 0));
	expect_exports(exports, true);
	free_exports(exports);
}

Test(published_host, a_child_reads_what_failed)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;

	refuses("hand_in", -EBADMSG, NULL);
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), -EBADMSG));
	cr_assert(eq(int, IN_CHILD(child_of(NULL, NULL, exports)), 0));
	expect_exports(exports, true);
	free_exports(exports);
}

/* What is being made is no child's. */
Test(published_host, a_child_refuses_what_is_in_the_making)
{
	struct DLManagedTensor *exports[TENSORS];
	struct gpuwm_publish *publish = begin_exported(exports);
	struct gpuwm_mapping *mapping = NULL;
	pid_t child = fork();

	if (child == 0) {
		bool mapped = can_read(exports[0]->dl_tensor.data);
		int r = gpuwm_publish_commit_attached(publish, &mapping);

		free_exports(exports);
		_exit(mapped || r != -ECHILD || gpuwm_publish_abort(publish, NULL) != -ECHILD ||
		      fake_segments_held() > 0);
	}
	cr_assert(eq(int, child_status(child), 0));
	cr_assert(eq(int, gpuwm_publish_commit_attached(publish, &mapping), 0));
	expect_exports(exports, false);
	free_exports(exports);
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

/* ---- memory is short ------------------------------------------------------- */

Test(published_host, is_done_or_undone_whichever_allocation_fails)
{
	bool failed = true;

	for (unsigned n = 1; failed; n++) {
		struct DLManagedTensor *exports[TENSORS];
		struct gpuwm_publish *publish = begin_exported(exports);
		struct gpuwm_mapping *mapping = NULL;
		int r;

		fail_alloc_arm(n);
		r = gpuwm_publish_commit_attached(publish, &mapping);
		failed = fail_alloc_disarm();
		cr_assert(r == 0 || (failed && (r == -ENOMEM || r == -EAGAIN || r == 2)),
			  "allocation %u: %d: %s", n, r, gpuwm_error()->message);
		expect_exports(exports, r < 0);
		free_exports(exports);
		if (mapping)
			cr_assert(eq(int, gpuwm_detach(mapping), 0));
		UNTIL(leases() == 0);
	}
}
