#include "tests/support/any/fd_count.h"
#include "tests/support/proto/index_sample.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

/* These stand before those of libc, and fail when they are told to. */
enum call { NOTHING, MEMFD, WRITE_INTERRUPTED, WRITE_PART, WRITE_NOTHING, WRITE, SEAL, LOOK_SEALS, LOOK_SIZE };
static enum call failing;

static bool fail_now(enum call what)
{
	bool now = failing == what;

	if (now)
		failing = NOTHING;
	return now;
}

__attribute__((visibility("default"))) int memfd_create(const char *name, unsigned flags)
{
	if (fail_now(MEMFD)) {
		errno = EMFILE;
		return -1;
	}
	return (int)syscall(SYS_memfd_create, name, flags);
}

__attribute__((visibility("default"))) ssize_t write(int fd, const void *data, size_t bytes)
{
	if (fail_now(WRITE_NOTHING))
		return 0;
	if (failing == WRITE || failing == WRITE_INTERRUPTED) {
		errno = failing == WRITE ? ENOSPC : EINTR;
		failing = NOTHING;
		return -1;
	}
	return syscall(SYS_write, fd, data, fail_now(WRITE_PART) ? bytes / 2 : bytes);
}

__attribute__((visibility("default"))) int fcntl(int fd, int command, ...)
{
	__builtin_va_list arguments;
	long argument;

	__builtin_va_start(arguments, command);
	argument = __builtin_va_arg(arguments, long);
	__builtin_va_end(arguments);
	if (command == F_ADD_SEALS && fail_now(SEAL)) {
		errno = EBUSY;
		return -1;
	}
	if (command == F_GET_SEALS && fail_now(LOOK_SEALS)) {
		errno = EIO;
		return -1;
	}
	return (int)syscall(SYS_fcntl, fd, command, argument);
}

__attribute__((visibility("default"))) int fstat(int fd, struct stat *ret)
{
	if (fail_now(LOOK_SIZE)) {
		errno = ENOMEM;
		return -1;
	}
	return (int)syscall(SYS_fstat, fd, ret);
}

static struct index_builder *b;
static int fd, fds_before;
static uint64_t bytes;
static struct index_map map;

static void open_sample(void)
{
	fds_before = fd_count();
	b = sample_builder();
	cr_assert_eq(index_builder_finish(b, &fd, &bytes, &error), 0, "%s", error.message);
}

static void free_sample(void)
{
	index_map_close(&map);
	index_builder_free(b);
	close(fd);
	cr_expect_eq(fd_count(), fds_before, "a descriptor stayed open");
}

TestSuite(index_map, .init = open_sample, .fini = free_sample);

Test(index_map, the_memfd_is_sealed_and_close_on_exec)
{
	cr_expect_eq(fcntl(fd, F_GET_SEALS, 0) & SEALS, SEALS);
	cr_expect_eq(fcntl(fd, F_GETFD, 0), FD_CLOEXEC);
	cr_expect_eq(lseek(fd, 0, SEEK_END), (off_t)bytes);
	cr_expect_eq(pwrite(fd, "x", 1, 0), -1);
}

Test(index_map, is_looked_up_in_place)
{
	cr_assert_eq(index_map_open(fd, bytes, false, &map, &error), 0, "%s", error.message);
	cr_expect_eq(index_find(&map.view, "wte"), 4);
	cr_expect_eq((const void *)map.view.header, map.data);
	index_map_close(&map);
	cr_expect_null(map.data);
	index_map_close(&map);
	cr_assert_eq(index_map_open(fd, bytes, true, &map, &error), 0);
	cr_expect_str_eq(index_metadata(&map.view, "format"), "pt");
}

static void refuses(int other, uint64_t size, int code, const char *part)
{
	cr_expect_eq(index_map_open(other, size, true, &map, &error), code);
	cr_expect(strstr(error.message, part), "%s", error.message);
	cr_expect_null(map.data);
}

Test(index_map, refuses_another_size)
{
	refuses(fd, bytes - 1, -EBADMSG, "is not of");
	refuses(fd, bytes + 1, -EBADMSG, "is not of");
	refuses(fd, 0, -EBADMSG, "is not of");
}

Test(index_map, refuses_what_is_no_memfd)
{
	int ends[2];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	refuses(ends[0], bytes, -EBADMSG, "no memfd");
	refuses(-1, bytes, -EBADMSG, "no memfd");
	close(ends[0]);
	close(ends[1]);
}

/* EBADMSG would say that the index is damaged. */
Test(index_map, a_failure_to_look_at_the_memfd_is_told_as_it_is)
{
	failing = LOOK_SEALS;
	refuses(fd, bytes, -EIO, "could not be looked at");
	failing = LOOK_SIZE;
	refuses(fd, bytes, -ENOMEM, "could not be looked at");
	cr_expect_eq(failing, NOTHING);
}

Test(index_map, refuses_each_missing_seal)
{
	static const int all[] = {F_SEAL_SEAL, F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_WRITE};

	for (size_t i = 0; i < 4; i++) {
		int other = memfd_create("index", MFD_CLOEXEC | MFD_ALLOW_SEALING);

		cr_assert_eq(ftruncate(other, (off_t)bytes), 0);
		cr_assert_eq(fcntl(other, F_ADD_SEALS, SEALS & ~all[i]), 0);
		refuses(other, bytes, -EBADMSG, "not sealed");
		close(other);
	}
}

/* A sealed memfd of zeros. */
static int zeros(uint64_t size)
{
	int other = memfd_create("index", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(other, (off_t)size), 0);
	cr_assert_eq(fcntl(other, F_ADD_SEALS, SEALS), 0);
	return other;
}

Test(index_map, refuses_what_is_no_index)
{
	int other = zeros(4096), large = zeros(INDEX_BYTES_MAX + 1), none = zeros(0);

	refuses(other, 4096, -EBADMSG, "GPUWMIX1");
	cr_expect_eq(index_map_open(other, 4096, false, &map, &error), -EBADMSG);
	refuses(large, INDEX_BYTES_MAX + 1, -EBADMSG, "is not of");
	refuses(none, 0, -EBADMSG, "is not of");
	close(other);
	close(large);
	close(none);
}

Test(index_map, finish_tells_what_the_kernel_refused)
{
	static const struct {
		enum call what;
		int code;
	} all[] = {{MEMFD, -EMFILE}, {WRITE, -ENOSPC}, {WRITE_NOTHING, -EIO}, {SEAL, -EBUSY}};

	for (size_t i = 0; i < 4; i++) {
		int other = -7, open = fd_count();
		uint64_t size = 7;

		failing = all[i].what;
		cr_expect_eq(index_builder_finish(b, &other, &size, &error), all[i].code);
		cr_expect_eq(failing, NOTHING);
		cr_expect(other == -7 && size == 7 && fd_count() == open, "%zu", i);
	}
}

Test(index_map, finish_goes_on_after_interruptions)
{
	for (enum call what = WRITE_INTERRUPTED; what <= WRITE_PART; what++) {
		int other;

		failing = what;
		cr_assert_eq(index_builder_finish(b, &other, &bytes, &error), 0);
		cr_assert_eq(index_map_open(other, bytes, false, &map, &error), 0, "%s", error.message);
		index_map_close(&map);
		close(other);
	}
}

#ifndef __SANITIZE_ADDRESS__ /* whose own maps need room too */
Test(index_map, no_room_to_map)
{
	struct rlimit old, none = {0};

	cr_assert_eq(getrlimit(RLIMIT_AS, &old), 0);
	none.rlim_max = old.rlim_max;
	setrlimit(RLIMIT_AS, &none);
	int r = index_map_open(fd, bytes, true, &map, &error);
	setrlimit(RLIMIT_AS, &old);
	cr_expect_eq(r, -ENOMEM);
	cr_expect(strstr(error.message, "mapping"), "%s", error.message);
}
#endif
