#include "memory/memory.h"
#include "proto/index/digest.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/any/huge_pages.h"
#include "tests/support/lib/fake.h"

#define BYTES 8192

static struct memory_device device;
static const struct memory_ops *ops = &memory_host;
static int fds_before;

static void setup(void)
{
	cr_assert(eq(int, memory_device_open("host", &device, NULL), 0));
	fds_before = fd_count();
}

static void teardown(void)
{
	cr_assert(eq(int, fd_count(), fds_before));
}

TestSuite(memory_host, .init = setup, .fini = teardown);

/* A segment that is filled with 7 and exported. */
static struct memory_segment exported(void)
{
	struct memory_segment segment;
	struct error error;

	cr_assert(eq(int, ops->create(&device, BYTES, &segment, &error), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), 0));
	memset(segment.address, 7, BYTES);
	ops->unmap(&device, &segment);
	cr_assert(eq(int, ops->export(&device, &segment, &error), 0), "%s", error.message);
	return segment;
}

Test(memory_host, reads_as_zeros_when_new)
{
	struct memory_segment segment;

	cr_assert(eq(int, ops->create(&device, BYTES, &segment, NULL), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, NULL), 0));
	for (size_t i = 0; i < BYTES; i++)
		cr_assert(eq(int, ((char *)segment.address)[i], 0));
	memset(segment.address, 1, BYTES);
	cr_assert(eq(int, ops->zero(&device, &segment, NULL), 0));
	cr_assert(eq(int, ((char *)segment.address)[BYTES - 1], 0));
	ops->release(&device, &segment);
	cr_assert(eq(int, segment.fd, -1));
}

Test(memory_host, goes_to_another_with_all_seals_and_its_bytes)
{
	struct memory_segment segment = exported(), copy;
	struct error error;

	cr_assert(eq(int, fcntl(segment.fd, F_GET_SEALS),
		     F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL));
	cr_assert(ne(int, fcntl(segment.fd, F_GETFD) & FD_CLOEXEC, 0));
	cr_assert(eq(int, ops->import(&device, segment.fd, BYTES, true, &copy, &error), 0));
	cr_assert(eq(int, copy.fd, -1));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, &error), 0));
	ops->release(&device, &segment);
	cr_assert(eq(int, ((char *)copy.address)[BYTES - 1], 7));
	ops->release(&device, &copy);
}

Test(memory_host, imports_and_forgets_without_mapping)
{
	struct memory_segment segment = exported(), copy;

	cr_assert(eq(int, ops->import(&device, segment.fd, BYTES, false, &copy, NULL), 0));
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

static void refused(int fd, uint64_t bytes, const char *words)
{
	struct memory_segment segment;
	struct error error = {0};

	cr_assert(eq(int, ops->import(&device, fd, bytes, true, &segment, &error), -EBADMSG));
	cr_assert(strstr(error.message, words) != NULL, "%s", error.message);
}

Test(memory_host, refuses_what_is_no_memfd)
{
	int null = open("/dev/null", O_RDWR | O_CLOEXEC), ends[2];

	cr_assert(eq(int, pipe(ends), 0));
	refused(null, BYTES, "is not a memfd");
	refused(ends[0], BYTES, "is not a memfd");
	close(null);
	close(ends[0]);
	close(ends[1]);
}

Test(memory_host, refuses_each_missing_seal)
{
	const int all[] = {F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK, F_SEAL_SEAL};

	for (int missing = 0; missing < 4; missing++) {
		int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		cr_assert(eq(int, ftruncate(fd, BYTES), 0));
		for (int i = 0; i < 4; i++) {
			if (i != missing)
				cr_assert(eq(int, fcntl(fd, F_ADD_SEALS, all[i]), 0));
		}
		refused(fd, BYTES, "lacks seals");
		close(fd);
	}
}

Test(memory_host, refuses_another_size_and_names_both)
{
	struct memory_segment segment = exported();

	refused(segment.fd, BYTES + 4096, "holds 8192 bytes, not the 12288");
	refused(segment.fd, BYTES - 4096, "holds 8192 bytes, not the 4096");
	ops->release(&device, &segment);
}

Test(memory_host, does_not_export_while_somebody_may_still_write)
{
	struct memory_segment segment;
	struct error error = {0};

	cr_assert(eq(int, ops->create(&device, BYTES, &segment, NULL), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, NULL), 0));
	cr_assert(eq(int, ops->export(&device, &segment, &error), -EBUSY));
	cr_assert(strstr(error.detail, "end every mapping") != NULL);
	ops->release(&device, &segment);
}

Test(memory_host, exports_although_a_child_was_forked_while_it_was_written)
{
	struct memory_segment segment;
	int ends[2];
	pid_t child;

	cr_assert(eq(int, ops->create(&device, BYTES, &segment, NULL), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, NULL), 0));
	cr_assert(eq(int, pipe(ends), 0));
	child = fork();
	if (child == 0) {
		close(ends[1]);
		_exit((int)read(ends[0], &child, 1));
	}
	ops->unmap(&device, &segment);
	cr_assert(eq(int, ops->export(&device, &segment, NULL), 0));
	close(ends[0]);
	close(ends[1]);
	waitpid(child, NULL, 0);
	ops->release(&device, &segment);
}

Test(memory_host, kills_who_writes_into_memory_that_is_mapped_for_reading)
{
	struct memory_segment segment = exported(), copy;
	int status;
	pid_t child;

	cr_assert(eq(int, ops->import(&device, segment.fd, BYTES, true, &copy, NULL), 0));
	cr_assert(eq(int, ops->map(&device, &copy, MEMORY_READ, NULL), 0));
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL); /* a sanitizer's own handler would only exit */
		*(volatile char *)copy.address = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	cr_assert(eq(int, status & 0x7f, SIGSEGV));
	ops->release(&device, &copy);
	ops->release(&device, &segment);
}

/* And lives on, although nobody ignores SIGXFSZ. */
Test(memory_host, says_that_there_is_no_room)
{
	struct rlimit limit, low;
	struct memory_segment segment;
	struct error error = {0};

	getrlimit(RLIMIT_FSIZE, &limit);
	low = limit;
	low.rlim_cur = 4096;
	setrlimit(RLIMIT_FSIZE, &low);
	cr_expect(eq(int, ops->create(&device, BYTES, &segment, &error), -ENOSPC));
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_assert(strstr(error.message, "no room for 8192 bytes") != NULL);
	cr_assert(strstr(error.message, "RLIMIT_FSIZE of 4.0 KiB") != NULL, "%s", error.message);
	cr_assert(strstr(error.detail, "RLIMIT_FSIZE") != NULL);
}

Test(memory_host, says_that_there_are_no_addresses_left)
{
	struct memory_segment segment;
	struct error error = {0};

	cr_assert(eq(int, ops->create(&device, UINT64_C(1) << 60, &segment, &error), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, &error), -ENOMEM));
	cr_assert(strstr(error.message, "mapping 1152921504606846976 bytes") != NULL);
	cr_assert(strstr(error.detail, "RLIMIT_AS") != NULL);
	ops->release(&device, &segment);
}

Test(memory_host, lies_in_huge_pages_where_the_kernel_gives_them)
{
	const uint64_t huge = UINT64_C(1) << 21;
	struct memory_segment segment;
	struct stat st;
	long before = huge_pages_kilobytes();

	if (!huge_pages_advised())
		cr_skip("/sys/kernel/mm/transparent_hugepage/shmem_enabled does not say advise");
	cr_assert(eq(int, ops->create(&device, 8 * huge + 4096, &segment, NULL), 0));
	cr_assert(eq(int, ops->map(&device, &segment, MEMORY_WRITE, NULL), 0));
	memset(segment.address, 7, 8 * huge + 4096);
	cr_expect(ge(long, huge_pages_kilobytes() - before, 4 * 2048)); /* others come and go */
	/* The page behind them takes no huge one. */
	cr_assert(eq(int, fstat(segment.fd, &st), 0));
	cr_expect(eq(u64, (uint64_t)st.st_blocks * 512, 8 * huge + 4096));
	ops->release(&device, &segment);
}

Test(memory_host, maps_where_huge_pages_can_be)
{
	struct memory_segment segments[3];

	for (int i = 0; i < 3; i++) {
		cr_assert(eq(int, ops->create(&device, BYTES, &segments[i], NULL), 0));
		cr_assert(
			eq(int, ops->map(&device, &segments[i], i % 2 ? MEMORY_READ : MEMORY_WRITE, NULL), 0));
		cr_assert(eq(u64, (uintptr_t)segments[i].address % (UINT64_C(1) << 21), 0));
	}
	for (int i = 0; i < 3; i++)
		ops->release(&device, &segments[i]);
}

Test(memory_host, says_which_limit_of_descriptors_was_met)
{
	struct rlimit limit, low;
	struct memory_segment segment;
	struct error error = {0};

	getrlimit(RLIMIT_NOFILE, &limit);
	low = limit;
	low.rlim_cur = 0;
	setrlimit(RLIMIT_NOFILE, &low);
	cr_expect(eq(int, ops->create(&device, BYTES, &segment, &error), -EMFILE));
	cr_expect(strstr(error.detail, "RLIMIT_NOFILE") != NULL);
	setrlimit(RLIMIT_NOFILE, &limit);
}

Test(memory_host, has_the_granularity_of_pages)
{
	uint64_t bytes;

	cr_assert(eq(int, ops->granularity(&device, &bytes, NULL), 0));
	cr_assert(eq(u64, bytes, (uint64_t)sysconf(_SC_PAGESIZE)));
}

static int count_progress(uint64_t bytes, void *user_data)
{
	*(uint64_t *)user_data += bytes;
	return 0;
}

static int stop_at_once(uint64_t bytes, void *user_data)
{
	(void)bytes;
	(void)user_data;
	return 1;
}

Test(memory_host, digests_in_pieces_as_in_one)
{
	size_t bytes = MEMORY_CHUNK_BYTES * 2 + 12345;
	unsigned char *data = malloc(bytes);
	const struct memory_span span = {data, bytes};
	uint64_t told = 0;
	const struct memory_digest_options counted = {.progress = count_progress, .user_data = &told};
	const struct memory_digest_options stopped = {.progress = stop_at_once};
	struct memory_sum pieces;
	struct error error = {0};
	struct digest whole;

	for (size_t i = 0; i < bytes; i++)
		data[i] = (unsigned char)(i * 31 >> 3);
	whole = digest_of(data, bytes);
	cr_assert(eq(int, memory_digests(&device, &span, 1, &counted, &pieces, &error), 0));
	cr_assert(digest_equal(&whole, &pieces.digest));
	cr_assert(eq(u64, told, bytes));
	cr_assert(eq(int, memory_digests(&device, &span, 1, &stopped, &pieces, &error), -ECANCELED));
	free(data);
}

Test(memory_host, knows_devices_by_their_grammar)
{
	struct memory_device other;
	struct error error = {0};

	cr_assert(eq(int, memory_device_open("gpu0", &other, &error), -EINVAL));
	cr_assert(strstr(error.message, "gpu0") != NULL);
}
