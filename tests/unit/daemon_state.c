/* The state in its two slots: writing, reading, and system calls that fail. */
#include "tests/support/daemon/state.h"
#include "tests/support/fail_alloc.h"

#include <sys/syscall.h>
#include <sys/uio.h>

/* ---- calls that fail, in front of libc's ---- */

/* Each is 0 (the real call), an errno, SHORT (three bytes at most), END (none) or TORN (58 bytes, then ENOSPC). */
#define SHORT (-1)
#define END (-2)
#define TORN (-3)
static int fail_pread, fail_pwritev, fail_memfd, fail_ftruncate, fail_seals;
static unsigned pread_later; /* so many go by first */
#define CALL __attribute__((visibility("default")))

static int fails(int *how)
{
	errno = *how;
	/* An interruption comes once. */
	if (*how == EINTR)
		*how = 0;
	return errno;
}

CALL ssize_t pread(int fd, void *data, size_t bytes, off_t offset)
{
	int how = pread_later > 0 ? 0 : fails(&fail_pread);

	pread_later -= pread_later > 0;
	if (how > 0 || how == END)
		return how > 0 ? -1 : 0;
	return syscall(SYS_pread64, fd, data, how == SHORT && bytes > 3 ? 3 : bytes, offset);
}

CALL ssize_t pwritev(int fd, const struct iovec *parts, int count, off_t offset)
{
	struct iovec first = parts[0].iov_len ? parts[0] : parts[1];
	int how = fails(&fail_pwritev);

	if (how > 0 || how == END)
		return how > 0 ? -1 : 0;
	if (how == 0)
		return syscall(SYS_pwritev, fd, parts, count, offset, 0);
	if (how == TORN) {
		fail_pwritev = ENOSPC;
		cr_assert_eq(syscall(SYS_pwrite64, fd, parts[0].iov_base, 56, offset), 56);
		return 56 + syscall(SYS_pwrite64, fd, parts[1].iov_base, 2, offset + 56);
	}
	return syscall(SYS_pwrite64, fd, first.iov_base, first.iov_len > 3 ? 3 : first.iov_len, offset);
}

CALL int memfd_create(const char *name, unsigned flags)
{
	return fails(&fail_memfd) ? -1 : (int)syscall(SYS_memfd_create, name, flags);
}

CALL int ftruncate(int fd, off_t bytes)
{
	return fails(&fail_ftruncate) ? -1 : (int)syscall(SYS_ftruncate, fd, bytes);
}

CALL int fcntl(int fd, int command, ...)
{
	__builtin_va_list arguments;
	long argument;

	__builtin_va_start(arguments, command);
	argument = __builtin_va_arg(arguments, long);
	__builtin_va_end(arguments);
	return command == F_ADD_SEALS && fails(&fail_seals) ? -1
							    : (int)syscall(SYS_fcntl, fd, command, argument);
}

/* ---- reading and writing ---- */

StateTest(is_read_back_as_it_was_written_last)
{
	static const char *const texts[] = {"one", "a second one", "", "3"};
	struct state *again;

	cr_expect_eq(read_from(state), -ENOENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(texts[i]);
		cr_assert(says(state, texts[i]));
		again = reopen();
		cr_assert(again && says(again, texts[i]));
		state_free(state);
		state = again;
	}
	cr_expect_eq(got.format, STATE_FORMAT);
	cr_expect_null(state_free(NULL));
}

StateTest(slots_are_as_the_header_tells)
{
	struct slot_header header;

	write_text("one");
	write_text("two");
	peek(1, &header, sizeof(header));
	cr_expect_eq(memcmp(header.magic, "GPUWMST", 8), 0);
	cr_expect(header.format == STATE_FORMAT && header.slots == 2 && header.generation == 2);
	cr_expect(header.bytes == 3 && header.reserved == 0);
	poke_slot(0, &(struct slot_header){.format = STATE_FORMAT, .slots = 2, .generation = 3}, "three");
	cr_expect(next_start_says("three"));
}

StateTest(is_a_sealed_memfd_that_children_do_not_inherit)
{
	char path[64], name[64] = "";

	cr_expect_eq(fcntl(state_fd(state), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_expect_eq(fcntl(state_fd(state), F_GETFD), FD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", state_fd(state));
	cr_assert_gt(readlink(path, name, sizeof(name) - 1), 0);
	cr_expect_str_eq(name, "/memfd:gpuwm-state (deleted)");
}

StateTest(holds_the_largest_payload_and_no_byte_more)
{
	char *data = malloc(STATE_BYTES_MAX + 1);

	memset(data, 'x', STATE_BYTES_MAX + 1);
	cr_assert_eq(state_write(state, data, STATE_BYTES_MAX), 0);
	cr_assert_eq(state_write(state, data, STATE_BYTES_MAX), 0);
	cr_expect_eq(state_write(state, data, STATE_BYTES_MAX + 1), -EMSGSIZE);
	cr_assert_eq(read_from(state), 0);
	cr_expect(got.bytes == STATE_BYTES_MAX && memcmp(data, got.data, got.bytes) == 0);
	free(data);
}

StateTest(short_and_interrupted_calls_are_gone_on_with)
{
	fail_pwritev = SHORT;
	write_text("a text that takes some calls");
	fail_pwritev = EINTR;
	write_text("");
	fail_pwritev = SHORT;
	write_text("another");
	fail_pwritev = 0;
	fail_pread = EINTR;
	cr_expect(next_start_says("another"));
	fail_pread = SHORT;
	cr_expect(next_start_says("another"));
	fail_pread = 0;
}

StateTest(failed_write_leaves_what_was_there)
{
	fail_pwritev = ENOSPC;
	cr_expect_eq(state_write(state, "none", 4), -ENOSPC);
	for (int i = 0; i < 3; i++) {
		fail_pwritev = 0;
		write_text("before");
		write_text("one");
		for (int failures = 0; failures < 3; failures++) {
			fail_pwritev = failures == 1 ? ENOSPC : TORN;
			cr_expect_eq(state_write(state, "two", 3), -ENOSPC);
			cr_expect(says(state, "one") && next_start_says("one"));
		}
	}
	fail_pwritev = 0;
}

StateTest(errors_of_the_system_are_told)
{
	const struct {
		int *fails, error;
	} calls[] = {{&fail_memfd, EMFILE}, {&fail_ftruncate, ENOMEM}, {&fail_seals, EPERM}};
	struct state *none = NULL;

	for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
		*calls[i].fails = calls[i].error;
		cr_expect_eq(state_new(&none), -calls[i].error);
		*calls[i].fails = 0;
	}
	cr_expect_null(none);
	write_text("one");
	fail_pread = EIO;
	cr_expect_null(reopen());
	cr_expect_eq(state_error.code, -EIO);
	cr_expect_eq(read_from(state), -EIO);
	pread_later = 1;
	cr_expect_eq(read_from(state), -EIO, "the payload");
	fail_pread = END;
	cr_expect_eq(read_from(state), -EIO);
	fail_pread = 0;
	fail_pwritev = END;
	cr_expect_eq(state_write(state, "two", 3), -EIO);
	poke(0, 56, "x", 1);
	cr_expect_eq(read_from(state), -EIO, "it changed since it was opened");
}

StateTest(running_out_of_memory_is_told_and_leaks_nothing)
{
	struct state *again;
	int r, fd;

	for (unsigned n = 1; fail_alloc_arm(n), r = state_new(&again), fail_alloc_disarm(); n++)
		cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(r, 0);
	state_free(again);
	write_text("one");
	write_text("two");
	fd = state_copy();
	for (unsigned n = 1; fail_alloc_arm(n), r = state_open(fd, &again, &state_error), fail_alloc_disarm();
	     n++)
		cr_assert(r == -ENOMEM && state_error.code == -ENOMEM);
	cr_assert_eq(r, 0);
	for (unsigned n = 1; fail_alloc_arm(n), r = read_from(again), fail_alloc_disarm(); n++)
		cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(r, 0);
	state_free(again);
}
