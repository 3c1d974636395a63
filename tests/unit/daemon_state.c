#include "daemon/restart/state.h"
#include "proto/digest.h"
#include "proto/limits.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

/* A slot as state.h tells it. */
#define SLOT_BYTES (56 + MIB(64))
struct slot_header {
	char magic[8];
	uint32_t format, slots;
	uint64_t generation, bytes;
	uint8_t digest[16];
	uint64_t reserved;
};

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

/* ---- what the tests share ---- */

static struct error error;

static struct state *make(void)
{
	struct state *state = NULL;

	cr_assert_eq(state_new(&state), 0);
	return state;
}

static void write_text(struct state *state, const char *text)
{
	cr_assert_eq(state_write(state, text, strlen(text)), 0);
}

static bool says(const struct state *state, const char *text)
{
	uint32_t format = 0;
	size_t bytes = 0;
	void *data = NULL;
	bool same;

	cr_assert_eq(state_read(state, &data, &bytes, &format), 0);
	same = bytes == strlen(text) && memcmp(data, text, bytes) == 0;
	free(data);
	return same;
}

static int copy_of(const struct state *state)
{
	return fcntl(state_fd(state), F_DUPFD_CLOEXEC, 3);
}

/* As the next start sees it; NULL with the error set. */
static struct state *reopen(const struct state *state)
{
	int fd = copy_of(state);
	struct state *again = NULL;

	error = (struct error){0};
	if (state_open(fd, &again, &error) < 0) {
		cr_expect_eq(close(fd), 0, "an error leaves the descriptor alone");
		return NULL;
	}
	return again;
}

static bool next_start_says(const struct state *state, const char *text)
{
	struct state *again = reopen(state);
	bool same = again && says(again, text);

	state_free(again);
	return same;
}

static void poke(const struct state *state, unsigned slot, size_t at, const void *data, size_t bytes)
{
	cr_assert_eq(pwrite(state_fd(state), data, bytes, (off_t)(slot * SLOT_BYTES + at)), (ssize_t)bytes);
}

static void peek(const struct state *state, unsigned slot, void *data, size_t bytes)
{
	cr_assert_eq(pread(state_fd(state), data, bytes, (off_t)(slot * SLOT_BYTES)), (ssize_t)bytes);
}

/* A slot as some other program wrote it. */
static void poke_slot(const struct state *state, unsigned slot, const struct slot_header *like,
		      const char *text)
{
	struct slot_header header = *like;
	struct digest_sum sum = {0};
	struct digest digest;

	if (!header.magic[0])
		memcpy(header.magic, "GPUWMST", 8);
	header.bytes = strlen(text);
	digest_update(&sum, 0, &header, sizeof(header));
	digest_update(&sum, sizeof(header), text, strlen(text));
	digest = digest_final(&sum, sizeof(header) + strlen(text));
	memcpy(header.digest, digest.bytes, 16);
	poke(state, slot, 0, &header, sizeof(header));
	poke(state, slot, sizeof(header), text, strlen(text));
}

/* ---- reading and writing ---- */

Test(state, is_read_back_as_it_was_written_last)
{
	static const char *const texts[] = {"one", "a second one", "", "3"};
	struct state *state = make(), *again;
	uint32_t format = 0;
	size_t bytes;
	void *data;

	cr_expect_eq(state_read(state, &data, &bytes, &format), -ENOENT);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++) {
		write_text(state, texts[i]);
		cr_assert(says(state, texts[i]));
		again = reopen(state);
		cr_assert(again && says(again, texts[i]));
		state_free(state);
		state = again;
	}
	cr_assert_eq(state_read(state, &data, &bytes, &format), 0);
	cr_expect_eq(format, STATE_FORMAT);
	free(data);
	cr_expect_null(state_free(state));
	cr_expect_null(state_free(NULL));
}

Test(state, slots_are_as_the_header_tells)
{
	struct state *state = make();
	struct slot_header header;

	write_text(state, "one");
	write_text(state, "two");
	peek(state, 1, &header, sizeof(header));
	cr_expect_eq(memcmp(header.magic, "GPUWMST", 8), 0);
	cr_expect(header.format == STATE_FORMAT && header.slots == 2 && header.generation == 2);
	cr_expect(header.bytes == 3 && header.reserved == 0);
	poke_slot(state, 0, &(struct slot_header){.format = STATE_FORMAT, .slots = 2, .generation = 3},
		  "three");
	cr_expect(next_start_says(state, "three"));
	state_free(state);
}

Test(state, is_a_sealed_memfd_that_children_do_not_inherit)
{
	struct state *state = make();
	char path[64], name[64] = "";

	cr_expect_eq(fcntl(state_fd(state), F_GET_SEALS), F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
	cr_expect_eq(fcntl(state_fd(state), F_GETFD), FD_CLOEXEC);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", state_fd(state));
	cr_assert_gt(readlink(path, name, sizeof(name) - 1), 0);
	cr_expect_str_eq(name, "/memfd:gpuwm-state (deleted)");
	state_free(state);
}

Test(state, holds_the_largest_payload_and_no_byte_more)
{
	struct state *state = make();
	char *data = calloc(1, MESSAGE_BODY_MAX + 1);
	size_t bytes = 0;
	uint32_t format;
	void *back;

	memset(data, 'x', MESSAGE_BODY_MAX + 1);
	cr_assert_eq(state_write(state, data, MESSAGE_BODY_MAX), 0);
	cr_assert_eq(state_write(state, data, MESSAGE_BODY_MAX), 0);
	cr_expect_eq(state_write(state, data, MESSAGE_BODY_MAX + 1), -EMSGSIZE);
	cr_assert_eq(state_read(state, &back, &bytes, &format), 0);
	cr_expect(bytes == MESSAGE_BODY_MAX && memcmp(data, back, bytes) == 0);
	free(back);
	free(data);
	state_free(state);
}

Test(state, short_and_interrupted_calls_are_gone_on_with)
{
	struct state *state = make();

	fail_pwritev = SHORT;
	write_text(state, "a text that takes some calls");
	fail_pwritev = EINTR;
	write_text(state, "");
	fail_pwritev = SHORT;
	write_text(state, "another");
	fail_pwritev = 0;
	fail_pread = EINTR;
	cr_expect(next_start_says(state, "another"));
	fail_pread = SHORT;
	cr_expect(next_start_says(state, "another"));
	fail_pread = 0;
	state_free(state);
}

Test(state, failed_write_leaves_what_was_there)
{
	struct state *state = make();

	fail_pwritev = ENOSPC;
	cr_expect_eq(state_write(state, "none", 4), -ENOSPC);
	for (int i = 0; i < 3; i++) {
		fail_pwritev = 0;
		write_text(state, "before");
		write_text(state, "one");
		for (int failures = 0; failures < 3; failures++) {
			fail_pwritev = failures == 1 ? ENOSPC : TORN;
			cr_expect_eq(state_write(state, "two", 3), -ENOSPC);
			cr_expect(says(state, "one") && next_start_says(state, "one"));
		}
	}
	fail_pwritev = 0;
	state_free(state);
}

Test(state, errors_of_the_system_are_told)
{
	struct state *state = NULL;
	int before = fd_count();
	uint32_t format;
	size_t bytes;
	void *data;

	fail_memfd = EMFILE;
	cr_expect_eq(state_new(&state), -EMFILE);
	fail_memfd = 0;
	fail_ftruncate = ENOMEM;
	cr_expect_eq(state_new(&state), -ENOMEM);
	fail_ftruncate = 0;
	fail_seals = EPERM;
	cr_expect_eq(state_new(&state), -EPERM);
	fail_seals = 0;
	cr_expect_null(state);
	state = make();
	write_text(state, "one");
	fail_pread = EIO;
	cr_expect_null(reopen(state));
	cr_expect_eq(error.code, -EIO);
	cr_expect_eq(state_read(state, &data, &bytes, &format), -EIO);
	pread_later = 1;
	cr_expect_eq(state_read(state, &data, &bytes, &format), -EIO, "the payload");
	fail_pread = END;
	cr_expect_eq(state_read(state, &data, &bytes, &format), -EIO);
	fail_pread = 0;
	fail_pwritev = END;
	cr_expect_eq(state_write(state, "two", 3), -EIO);
	fail_pwritev = 0;
	poke(state, 0, 56, "x", 1);
	cr_expect_eq(state_read(state, &data, &bytes, &format), -EIO, "it changed since it was opened");
	state_free(state);
	cr_expect_eq(fd_count(), before);
}

Test(state, running_out_of_memory_is_told_and_leaks_nothing)
{
	struct state *state = NULL, *again;
	uint32_t format;
	size_t bytes;
	void *data;
	int before = fd_count(), r, fd;

	for (unsigned n = 1; fail_alloc_arm(n), r = state_new(&state), fail_alloc_disarm(); n++)
		cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(r, 0);
	write_text(state, "one");
	write_text(state, "two");
	fd = copy_of(state);
	for (unsigned n = 1; fail_alloc_arm(n), r = state_open(fd, &again, &error), fail_alloc_disarm(); n++)
		cr_assert(r == -ENOMEM && error.code == -ENOMEM);
	cr_assert_eq(r, 0);
	for (unsigned n = 1;
	     fail_alloc_arm(n), r = state_read(again, &data, &bytes, &format), fail_alloc_disarm(); n++)
		cr_assert_eq(r, -ENOMEM);
	cr_assert_eq(r, 0);
	free(data);
	state_free(again);
	state_free(state);
	cr_expect_eq(fd_count(), before);
}

/* ---- torn and damaged ---- */

/* The younger slot is given every prefix of a write, and the rest of what was there before. */
static void tear(const char *older, const char *old, const char *new)
{
	char before[256] = "", after[256] = "";
	size_t bytes = sizeof(struct slot_header) + strlen(new);
	struct state *state = make();

	write_text(state, older);
	write_text(state, old);
	peek(state, 0, before, sizeof(before));
	write_text(state, new);
	peek(state, 0, after, sizeof(after));
	for (size_t n = 0; n < bytes; n++) {
		poke(state, 0, 0, before, sizeof(before));
		poke(state, 0, 0, after, n);
		/* What is the same in both may be torn without harm. */
		bool whole = memcmp(before + n, after + n, bytes - n) == 0;
		cr_assert(next_start_says(state, whole ? new : old), "after %zu bytes: %s", n, error.message);
	}
	poke(state, 0, 0, after, bytes);
	cr_assert(next_start_says(state, new));
	for (size_t bit = 0; bit < 8 * bytes; bit++) {
		char flipped = (char)(after[bit / 8] ^ 1 << bit % 8);

		poke(state, 0, bit / 8, &flipped, 1);
		cr_assert(next_start_says(state, old), "bit %zu", bit);
		poke(state, 0, bit / 8, &after[bit / 8], 1);
	}
	state_free(state);
}

Test(state, write_torn_at_any_byte_leaves_the_older_one)
{
	tear("first", "second", "and a third that is longer");
	tear("first was the longest of them", "second", "third");
	tear("same", "other", "same");
	tear("", "other", "");
}

Test(state, first_write_torn_at_any_byte_leaves_none)
{
	char after[64];
	struct state *state = make();

	write_text(state, "one");
	peek(state, 0, after, sizeof(after));
	for (size_t n = 0; n < 59; n++) {
		char zeros[64] = "";
		memcpy(zeros, after, n);
		poke(state, 0, 0, zeros, sizeof(zeros));
		cr_assert_null(reopen(state));
		cr_assert_eq(error.code, -EUCLEAN);
		cr_assert_str_eq(error.message, "neither slot of the state is valid");
	}
	poke(state, 0, 0, after, 59);
	cr_expect(next_start_says(state, "one"));
	state_free(state);
}

Test(state, goes_on_from_the_valid_slot_beside_a_torn_one)
{
	struct state *state = make(), *again;

	for (unsigned torn = 0; torn < 2; torn++) {
		write_text(state, "one");
		write_text(state, "two");
		poke(state, torn, 56, "?", 1);
		again = reopen(state);
		cr_assert(again && says(again, torn == 1 ? "one" : "two"));
		write_text(again, "three");
		cr_expect(next_start_says(state, "three"));
		write_text(again, "four");
		cr_expect(next_start_says(state, "four"));
		state_free(state);
		state = again;
	}
	state_free(state);
}

Test(state, headers_that_cannot_be_are_no_slot)
{
	static const struct slot_header wrong[] = {
		{.format = 0, .slots = 2, .generation = 9},
		{.format = STATE_FORMAT, .slots = 3, .generation = 9},
		{.format = STATE_FORMAT, .slots = 2, .generation = 0},
		{.magic = "GPUWMSU", .format = STATE_FORMAT, .slots = 2, .generation = 9},
	};
	struct slot_header long_one = {.magic = "GPUWMST", .format = 1, .slots = 2, .generation = 9};
	struct state *state = make();

	write_text(state, "one");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		poke_slot(state, 1, &wrong[i], "two");
		cr_expect(next_start_says(state, "one"), "%zu", i);
	}
	for (uint64_t bytes = MIB(64); bytes; bytes = bytes == MIB(64) ? MIB(64) + 1 : 2 * bytes + 1) {
		long_one.bytes = bytes;
		poke(state, 1, 0, &long_one, sizeof(long_one));
		cr_expect(next_start_says(state, "one"));
		if (bytes > UINT64_MAX / 2)
			break;
	}
	state_free(state);
}

/* ---- formats ---- */

static struct slot_header header_of(uint32_t format, uint64_t generation)
{
	return (struct slot_header){.format = format, .slots = 2, .generation = generation};
}

Test(state, newer_format_is_refused_with_both_numbers)
{
	struct slot_header newer = header_of(STATE_FORMAT + 1, 3), older = header_of(STATE_FORMAT + 1, 1);
	struct state *state = make();
	char expected[128];

	snprintf(expected, sizeof(expected), "the state is of format %u, this gpuwmd reads up to %u",
		 STATE_FORMAT + 1, STATE_FORMAT);
	write_text(state, "one");
	write_text(state, "two");
	poke_slot(state, 0, &newer, "newer");
	cr_expect_null(reopen(state), "a readable older slot does not count");
	cr_expect_eq(error.code, -EUCLEAN);
	cr_expect_str_eq(error.message, expected);
	cr_expect_str_neq(error.detail, "");
	poke_slot(state, 0, &older, "newer");
	cr_expect(next_start_says(state, "two"), "the younger one is ours");
	poke_slot(state, 0, &newer, "newer");
	poke(state, 0, 57, "?", 1);
	cr_expect(next_start_says(state, "two"), "torn");
	state_free(state);
}

/* ---- what is no state ---- */

static void refuse(int fd, const char *what)
{
	struct state *state = NULL;

	cr_assert_geq(fd, 0, "%s", what);
	error = (struct error){0};
	cr_expect_eq(state_open(fd, &state, &error), -EUCLEAN, "%s", what);
	cr_expect(strstr(error.message, "no memfd of two slots"), "%s: %s", what, error.message);
	cr_expect_eq(close(fd), 0, "%s is still the caller's", what);
}

static int memfd_of(uint64_t bytes, int seals)
{
	int fd = memfd_create("gpuwm-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

Test(state, foreign_descriptors_are_refused_without_blocking, .timeout = 120)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int ends[2], before = fd_count();
	struct state *state = make();
	char path[64];

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	refuse(ends[0], "a pipe");
	refuse(ends[1], "a pipe's other end");
	cr_assert_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
	refuse(ends[0], "a socket");
	refuse(ends[1], "its peer");
	refuse(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null");
	refuse(open("/dev/zero", O_RDWR | O_CLOEXEC), "/dev/zero");
	refuse(open("/", O_RDONLY | O_DIRECTORY | O_CLOEXEC), "a folder");
	refuse(open("/proc/self/exe", O_RDONLY | O_CLOEXEC), "a file");
	refuse(open("/proc/self/exe", O_PATH | O_CLOEXEC), "a file's path");
	refuse(open("/dev/shm", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), "a file in memory");
	refuse(memfd_of(0, seals), "an empty memfd");
	refuse(memfd_of(2 * SLOT_BYTES + 1, seals), "a longer memfd");
	refuse(memfd_of(2 * SLOT_BYTES - 1, seals), "a shorter memfd");
	refuse(memfd_of(2 * SLOT_BYTES, 0), "a memfd without seals");
	refuse(memfd_of(2 * SLOT_BYTES, seals & ~F_SEAL_SHRINK), "a memfd that may shrink");
	refuse(memfd_of(2 * SLOT_BYTES, seals | F_SEAL_WRITE), "a memfd that can't be written");
	write_text(state, "one");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", state_fd(state));
	refuse(open(path, O_RDONLY | O_CLOEXEC), "our own for reading only");
	cr_expect_eq(state_open(-1, &state, &error), -EUCLEAN);
	state_free(state);
	cr_expect_eq(fd_count(), before);
}

Test(state, memfd_like_ours_with_other_content_has_no_valid_slot)
{
	struct state *state = make();
	char *noise = malloc(4096);

	cr_expect_null(reopen(state), "never written");
	cr_expect_str_eq(error.message, "neither slot of the state is valid");
	for (size_t i = 0; i < 4096; i++)
		noise[i] = (char)(i * 2654435761u >> 24);
	poke(state, 0, 0, noise, 4096);
	poke(state, 1, 0, noise, 4096);
	cr_expect_null(reopen(state));
	cr_expect_eq(error.code, -EUCLEAN);
	free(noise);
	state_free(state);
}
