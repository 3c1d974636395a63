/* A state that is torn, damaged, of another format, or none at all. */
#include "tests/support/daemon/state.h"

#include <sys/socket.h>

/* ---- torn and damaged ---- */

/* The younger slot of a new state is given every prefix of a write, and the rest of what was there before. */
static void tear(const char *older, const char *old, const char *new)
{
	char before[256] = "", after[256] = "";
	size_t count = sizeof(struct slot_header) + strlen(new);

	state_free(state);
	cr_assert_eq(state_new(&state), 0);
	write_text(older);
	write_text(old);
	peek(0, before, sizeof(before));
	write_text(new);
	peek(0, after, sizeof(after));
	for (size_t n = 0; n < count; n++) {
		poke(0, 0, before, sizeof(before));
		poke(0, 0, after, n);
		/* What is the same in both may be torn without harm. */
		bool whole = memcmp(before + n, after + n, count - n) == 0;
		cr_assert(next_start_says(whole ? new : old), "after %zu bytes: %s", n, state_error.message);
	}
	poke(0, 0, after, count);
	cr_assert(next_start_says(new));
	for (size_t bit = 0; bit < 8 * count; bit++) {
		char flipped = (char)(after[bit / 8] ^ 1 << bit % 8);

		poke(0, bit / 8, &flipped, 1);
		cr_assert(next_start_says(old), "bit %zu", bit);
		poke(0, bit / 8, &after[bit / 8], 1);
	}
}

StateTest(write_torn_at_any_byte_leaves_the_older_one)
{
	tear("first", "second", "and a third that is longer");
	tear("first was the longest of them", "second", "third");
	tear("same", "other", "same");
	tear("", "other", "");
}

StateTest(first_write_torn_at_any_byte_leaves_none)
{
	char after[64];

	write_text("one");
	peek(0, after, sizeof(after));
	for (size_t n = 0; n < 59; n++) {
		char zeros[64] = "";
		memcpy(zeros, after, n);
		poke(0, 0, zeros, sizeof(zeros));
		cr_assert_null(reopen());
		cr_assert_eq(state_error.code, -EUCLEAN);
		cr_assert_str_eq(state_error.message, "neither slot of the state is valid");
	}
	poke(0, 0, after, 59);
	cr_expect(next_start_says("one"));
}

StateTest(goes_on_from_the_valid_slot_beside_a_torn_one)
{
	struct state *again;

	for (unsigned torn = 0; torn < 2; torn++) {
		write_text("one");
		write_text("two");
		poke(torn, 56, "?", 1);
		again = reopen();
		cr_assert(again && says(again, torn == 1 ? "one" : "two"));
		write_to(again, "three");
		cr_expect(next_start_says("three"));
		write_to(again, "four");
		cr_expect(next_start_says("four"));
		state_free(state);
		state = again;
	}
}

StateTest(headers_that_cannot_be_are_no_slot)
{
	static const struct slot_header wrong[] = {
		{.format = 0, .slots = 2, .generation = 9},
		{.format = STATE_FORMAT, .slots = 3, .generation = 9},
		{.format = STATE_FORMAT, .slots = 2, .generation = 0},
		{.format = STATE_FORMAT, .slots = 2, .generation = UINT64_MAX},
		{.magic = "GPUWMSU", .format = STATE_FORMAT, .slots = 2, .generation = 9},
	};
	struct slot_header long_one = {.magic = "GPUWMST", .format = 1, .slots = 2, .generation = 9};

	write_text("one");
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		poke_slot(1, &wrong[i], "two");
		cr_expect(next_start_says("one"), "%zu", i);
	}
	for (uint64_t bytes = MIB(64); bytes; bytes = bytes == MIB(64) ? MIB(64) + 1 : 2 * bytes + 1) {
		long_one.bytes = bytes;
		poke(1, 0, &long_one, sizeof(long_one));
		cr_expect(next_start_says("one"));
		if (bytes > UINT64_MAX / 2)
			break;
	}
}

/* ---- formats ---- */

static struct slot_header header_of(uint32_t format, uint64_t generation)
{
	return (struct slot_header){.format = format, .slots = 2, .generation = generation};
}

StateTest(newer_format_is_refused_with_both_numbers)
{
	struct slot_header newer = header_of(STATE_FORMAT + 1, 3), older = header_of(STATE_FORMAT + 1, 1);
	char expected[128];

	snprintf(expected, sizeof(expected), "the state is of format %u, this gpuwmd reads up to %u",
		 STATE_FORMAT + 1, STATE_FORMAT);
	write_text("one");
	write_text("two");
	poke_slot(0, &newer, "newer");
	cr_expect_null(reopen(), "a readable older slot does not count");
	cr_expect_eq(state_error.code, -EUCLEAN);
	cr_expect_str_eq(state_error.message, expected);
	cr_expect_str_neq(state_error.detail, "");
	poke_slot(0, &older, "newer");
	cr_expect(next_start_says("two"), "the younger one is ours");
	poke_slot(0, &newer, "newer");
	poke(0, 57, "?", 1);
	cr_expect(next_start_says("two"), "torn");
}

/* ---- what is no state ---- */

static void refuse(int fd, const char *what)
{
	struct state *none;

	cr_assert_geq(fd, 0, "%s", what);
	state_error = (struct error){0};
	cr_expect_eq(state_open(fd, &none, &state_error), -EUCLEAN, "%s", what);
	cr_expect(strstr(state_error.message, "no memfd of two slots"), "%s: %s", what, state_error.message);
	cr_expect_eq(close(fd), 0, "%s is still the caller's", what);
}

static int memfd_of(uint64_t bytes, int seals)
{
	int fd = memfd_create("gpuwm-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);

	cr_assert_eq(ftruncate(fd, (off_t)bytes), 0);
	cr_assert_eq(fcntl(fd, F_ADD_SEALS, seals), 0);
	return fd;
}

StateTest(foreign_descriptors_are_refused_without_blocking, .timeout = 120)
{
	const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
	int ends[2];
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
	write_text("one");
	snprintf(path, sizeof(path), "/proc/self/fd/%d", state_fd(state));
	refuse(open(path, O_RDONLY | O_CLOEXEC), "our own for reading only");
	cr_expect_eq(state_open(-1, &(struct state *){NULL}, &state_error), -EUCLEAN);
}

StateTest(memfd_like_ours_with_other_content_has_no_valid_slot)
{
	char *noise = malloc(4096);

	cr_expect_null(reopen(), "never written");
	cr_expect_str_eq(state_error.message, "neither slot of the state is valid");
	for (size_t i = 0; i < 4096; i++)
		noise[i] = (char)(i * 2654435761u >> 24);
	poke(0, 0, noise, 4096);
	poke(1, 0, noise, 4096);
	cr_expect_null(reopen());
	cr_expect_eq(state_error.code, -EUCLEAN);
	free(noise);
}
