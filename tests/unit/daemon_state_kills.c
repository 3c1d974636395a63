/* A writer of states that is killed at random moments: what it told of is there, or the one after. */
#include "tests/support/daemon/state.h"

#include "proto/index/digest.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>

/* What the n-th write says: its number, and bytes that follow from it. */
enum { KILLS = 400, TEXT_MAX = 512 << 10 };
static char *text_of(uint64_t n, size_t *ret_bytes)
{
	static char text[TEXT_MAX];
	uint64_t word = n * 0x9E3779B97F4A7C15 | 1;

	*ret_bytes = 8 + word % (TEXT_MAX - 16) / 8 * 8;
	memcpy(text, &n, 8);
	for (size_t i = 8; i < *ret_bytes; i += 8) {
		word += 0x9E3779B97F4A7C15;
		memcpy(text + i, &word, 8);
	}
	return text;
}

/* Writes until it is killed, and tells what was written. */
static void write_on(uint64_t n, int tell)
{
	for (;; n++) {
		size_t bytes;
		const char *text = text_of(n, &bytes);

		if (state_write(state, text, bytes) < 0 || write(tell, &n, sizeof(n)) != sizeof(n))
			_exit(1);
	}
}

/* The last number that a writer told before it was killed, at a moment that `after_us` tells. */
static uint64_t run_and_kill(uint64_t first, unsigned after_us)
{
	struct timespec moment = {.tv_nsec = after_us * 1000l};
	uint64_t told = first - 1, n;
	int ends[2], status;
	pid_t child;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	child = fork();
	cr_assert_geq(child, 0);
	if (child == 0)
		write_on(first, ends[1]);
	close(ends[1]);
	nanosleep(&moment, NULL);
	kill(child, SIGKILL);
	while (read(ends[0], &n, sizeof(n)) == sizeof(n))
		told = n;
	close(ends[0]);
	cr_assert_eq(waitpid(child, &status, 0), child);
	cr_assert(WIFSIGNALED(status), "the writer failed");
	return told;
}

/* Whether the slot that was written last, or would be next, holds half a write. */
static bool is_torn(unsigned slot)
{
	struct slot_header header, plain;
	struct digest_sum sum = {0};
	struct digest digest;
	char *text;

	peek(slot, &header, sizeof(header));
	if (header.generation == 0)
		return false;
	plain = header;
	memset(plain.digest, 0, sizeof(plain.digest));
	text = malloc(header.bytes + 1);
	cr_assert_eq(pread(state_fd(state), text, header.bytes, (off_t)(slot * SLOT_BYTES + 56)),
		     (ssize_t)header.bytes);
	digest_update(&sum, 0, &plain, sizeof(plain));
	digest_update(&sum, sizeof(plain), text, header.bytes);
	digest = digest_final(&sum, sizeof(plain) + header.bytes);
	free(text);
	return memcmp(digest.bytes, header.digest, 16) != 0;
}

StateTest(killed_at_any_moment_loses_nothing_that_was_told, .timeout = 120)
{
	unsigned torn = 0, ahead = 0;
	uint64_t told = 0, found;
	struct state *again;

	cr_assert_eq(state_write(state, &told, sizeof(told)), 0);
	for (unsigned i = 0; i < KILLS; i++) {
		size_t expected;

		told = run_and_kill(told + 1, i * 2654435761u % 3000);
		torn += is_torn(0) || is_torn(1);
		again = reopen();
		cr_assert(again, "kill %u: %s", i, state_error.message);
		state_free(state);
		state = again;
		cr_assert_eq(read_from(state), 0);
		memcpy(&found, got.data, sizeof(found));
		cr_assert(found == told || found == told + 1, "kill %u: %lu was told, %lu is there", i, told,
			  found);
		cr_assert(found == 0 || memcmp(text_of(found, &expected), got.data, got.bytes) == 0);
		ahead += found > told;
		told = found;
	}
	fprintf(stderr, "daemon_state: %u kills, %lu writes, %u torn, %u not told yet\n", KILLS, told, torn,
		ahead);
	cr_expect_gt(torn, 0, "no kill hit a write");
}
