/* One copy for any number of workers (D1), without a copy (D2), read-only. */
#include "harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(sharing);

#define WORKERS_MAX 64

/* ---- D1 --------------------------------------------------------------- */

static volatile uint64_t sink;

/* Attaches, reads every byte, "copy": into private memory; says 'a' and stays. */
static int worker_touch(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	CHILD_ASSERT(argc == 2);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, argv[0], NULL, &mapping) == 0);
	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		const uint64_t *words = tensor.data;

		if (strcmp(argv[1], "copy") == 0 && tensor.bytes) {
			void *copy = malloc(tensor.bytes);

			CHILD_ASSERT(copy && gpuwm_tensor_read(mapping, &tensor, 0, copy, tensor.bytes) == 0);
			words = copy;
		}
		for (uint64_t w = 0; w < tensor.bytes / 8; w += 64)
			sink += words[w];
	}
	child_say('a');
	child_hear();
	_exit(0); /* its copies need no freeing */
}

/* Sums a field of smaps, of mappings of memfds or of all. */
static uint64_t smaps_sum(pid_t pid, const char *field, bool memfds_only)
{
	char path[64], line[512];
	uint64_t total = 0;
	bool counts = false;
	FILE *file;

	snprintf(path, sizeof path, "/proc/%d/smaps", (int)pid);
	file = fopen(path, "re");
	cr_assert(file);
	while (fgets(line, sizeof line, file)) {
		unsigned long long from, to, kilobytes;

		if (sscanf(line, "%llx-%llx", &from, &to) == 2)
			counts = !memfds_only || strstr(line, "/memfd:");
		else if (counts && strncmp(line, field, strlen(field)) == 0 &&
			 sscanf(line + strlen(field), ": %llu", &kilobytes) == 1)
			total += kilobytes * 1024;
	}
	fclose(file);
	return total;
}

/* Starts n workers, sums Pss of memfds and anonymous bytes (copies) over them, ends them. */
static void sharing_measure(struct gpuwmd *d, int n, const char *mode, uint64_t *ret_pss, uint64_t *ret_private)
{
	struct process workers[WORKERS_MAX];
	uint64_t held = memory_of(d);

	*ret_pss = *ret_private = 0;
	for (int i = 0; i < n; i++)
		workers[i] = process_start(worker_touch, "m", mode, NULL);
	for (int i = 0; i < n; i++)
		process_expect(&workers[i], 'a');
	cr_assert_eq(memory_of(d), held);
	cr_assert_eq(status_of(d, "leases"), (uint64_t)n);
	for (int i = 0; i < n; i++) {
		*ret_pss += smaps_sum(workers[i].pid, "Pss", true);
		*ret_private += smaps_sum(workers[i].pid, "Anonymous", false);
	}
	for (int i = 0; i < n; i++) {
		process_tell(&workers[i], 'x');
		process_finish(&workers[i]);
	}
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
}

GPUWMD_TEST_IF(sharing, memory_is_counted_once_for_1_to_64_workers,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "Pss is of host memory"), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	const struct checkpoint *c = LARGE(1);

	load_version(d, checkpoint_write(d, "v1", c), "m@v1");
	fds_settled(d); /* the loader that filled it is gone, and maps none of it */
	for (int n = 1; n <= WORKERS_MAX; n *= 2) {
		uint64_t pss, private, size = checkpoint_bytes(c);

		sharing_measure(d, n, "share", &pss, &private);
		cr_assert(pss > size - size / 100 && pss < size + size / 50, "%d workers: Pss %ju of %ju", n,
			  pss, size);
		cr_assert(SANITIZED || private < (uint64_t)n * MB(4), "%d workers: %ju private", n, private);
	}
	DROP(d, "m@v1");
}

Test(sharing, private_copies_would_show)
{
	const struct checkpoint *c = LARGE(1);
	uint64_t pss, private;
	struct gpuwmd *d;

	SKIP_UNLESS(backend() == BACKEND_HOST, "private memory is of the host");
	d = gpuwmd_start(NULL);
	load_version(d, checkpoint_write(d, "v1", c), "m@v1");
	sharing_measure(d, 4, "copy", &pss, &private);
	cr_assert_geq(private, 4 * checkpoint_bytes(c));
	gpuwmd_stop(d);
}

GPUWMD_TEST(sharing, all_workers_of_a_device_get_one_copy)
{
	struct process workers[WORKERS_MAX];
	int count = backend() == BACKEND_CUDA ? 8 : WORKERS_MAX;
	uint64_t held;

	load_small(d, 1);
	held = memory_of(d);
	for (int i = 0; i < count; i++)
		workers[i] = worker_start(d, "m", 1);
	cr_assert_eq(memory_of(d), held);
	for (int i = 0; i < count; i++)
		process_tell(&workers[i], 'd');
	for (int i = 0; i < count; i++)
		process_finish(&workers[i]);
	cr_assert_eq(memory_of(d), held);
	DROP(d, "m@v1");
}

/* ---- D2 --------------------------------------------------------------- */

/* The inode and access of the mapping that holds this address. */
static ino_t mapping_inode(const void *address, char ret_access[5], uint64_t *ret_bytes)
{
	FILE *file = fopen("/proc/self/maps", "re");
	char line[512];
	ino_t found = 0;

	while (file && fgets(line, sizeof line, file)) {
		unsigned long long from, to, inode;

		if (sscanf(line, "%llx-%llx %4s %*s %*s %llu", &from, &to, ret_access, &inode) == 4 &&
		    from <= (uintptr_t)address && (uintptr_t)address < to) {
			found = (ino_t)inode;
			*ret_bytes = to - from;
			break;
		}
	}
	if (file)
		fclose(file);
	return found;
}

static struct gpuwm_handles *handles_of(struct gpuwm_client *client, const char *ref, const char *device)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_handles *handles;

	options.device = device;
	OK(gpuwm_get_handles(client, ref, &options, &handles));
	return handles;
}

GPUWMD_TEST_BY(sharing, every_tensor_lies_in_the_segment_that_the_daemon_holds, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_handles *handles;
	struct gpuwm_tensor tensor;
	struct stat stat_;
	uint64_t bytes;
	char access_[5];

	load_small(d, 1);
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	handles = handles_of(client, "m", NULL);
	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		int fd = OK(gpuwm_handles_segment(handles, tensor.segment, &bytes));
		uint64_t mapped = 0;

		cr_assert_leq(tensor.offset + tensor.bytes, bytes);
		cr_assert_eq((uintptr_t)tensor.data % 256, 0, "%s", tensor.name);
		if (backend() != BACKEND_HOST || tensor.bytes == 0)
			continue;
		cr_assert(fstat(fd, &stat_) == 0);
		cr_assert_eq(mapping_inode(tensor.data, access_, &mapped), stat_.st_ino, "%s", tensor.name);
		cr_assert_str_eq(access_, "r--p");
		cr_assert_geq(mapped, bytes);
	}
	OK(gpuwm_handles_release(handles));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

static uint64_t io_of_self(void)
{
	unsigned long long read_bytes = 0, written = 0;
	FILE *file = fopen("/proc/self/io", "re");

	cr_assert(file && fscanf(file, "rchar: %llu wchar: %llu", &read_bytes, &written) == 2);
	fclose(file);
	return read_bytes + written;
}

GPUWMD_TEST_BY(sharing, attaching_reads_and_writes_no_weights, gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	uint64_t before, after, private = 0;

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	/* The first attach of a process opens the driver. */
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	OK(gpuwm_detach(mapping));
	before = io_of_self();
	private = smaps_sum(getpid(), "Anonymous", true);
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	after = io_of_self();
	cr_assert_lt(after - before, KB(256));
	if (backend() == BACKEND_HOST) {
		cr_assert(mapping_holds(mapping, 1));
		cr_assert_eq(smaps_sum(getpid(), "Anonymous", true), private);
	}
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

GPUWMD_TEST_IF(sharing, two_processes_see_one_inode,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "inodes are of memfds"), gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client;
	struct gpuwm_handles *first, *second;
	struct stat one, two;
	uint64_t bytes;

	client = client_new();
	load_small(d, 1);
	first = handles_of(client, "m", NULL);
	second = handles_of(d->admin, "m@v1", "host");
	cr_assert(fstat(OK(gpuwm_handles_segment(first, 0, &bytes)), &one) == 0);
	cr_assert(fstat(OK(gpuwm_handles_segment(second, 0, &bytes)), &two) == 0);
	cr_assert_eq(one.st_ino, two.st_ino);
	cr_assert_eq((uint64_t)one.st_size, bytes);
	OK(gpuwm_handles_release(first));
	OK(gpuwm_handles_release(second));
	gpuwm_close(client);
}

/* ---- read-only -------------------------------------------------------- */

static int worker_write(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, argv[0], NULL, &mapping) == 0);
	CHILD_ASSERT(gpuwm_tensor_at(mapping, 0, &tensor) == 0);
	*(volatile uint8_t *)(uintptr_t)tensor.data = 1;
	_exit(0);
}

GPUWMD_TEST_IF(sharing, a_write_kills_the_writer_and_changes_nothing,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "a store into GPU memory needs a kernel: tests/gpu"),
	       gpuwmd_start(NULL), gpuwmd_stop)
{
	struct process worker, writer;

	load_small(d, 1);
	worker = worker_start(d, "m", 1);
	writer = process_start(worker_write, "m", NULL);
	cr_assert(died_of_fault(process_join(&writer)));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	process_tell(&worker, 'd');
	process_finish(&worker);
}

GPUWMD_TEST_IF(sharing, a_segment_can_not_be_written_through_its_descriptor,
	       SKIP_UNLESS(backend() == BACKEND_HOST, "seals are of memfds"), gpuwmd_start(NULL), gpuwmd_stop)
{
	struct gpuwm_client *client;
	struct gpuwm_handles *handles;
	uint64_t bytes, index_bytes;
	int fd, index;

	client = client_new();
	load_small(d, 1);
	handles = handles_of(client, "m", NULL);
	fd = OK(gpuwm_handles_segment(handles, 0, &bytes));
	index = OK(gpuwm_handles_index(handles, &index_bytes));
	cr_assert(mmap(NULL, bytes, PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EPERM);
	cr_assert(mmap(NULL, index_bytes, PROT_WRITE, MAP_SHARED, index, 0) == MAP_FAILED && errno == EPERM);
	cr_assert(write(fd, "x", 1) < 0 && errno == EPERM);
	cr_assert(ftruncate(fd, 0) < 0 && errno == EPERM);
	OK(gpuwm_handles_release(handles));
	gpuwm_close(client);
}
