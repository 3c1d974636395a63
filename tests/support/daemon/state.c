#include "state.h"

#include "proto/index/digest.h"

struct state *state;
struct error state_error;
struct state_got got;

static int fds_before;

void state_begin(void)
{
	fds_before = fd_count();
	cr_assert_eq(state_new(&state), 0);
}

void state_end(void)
{
	free(got.data);
	cr_expect_null(state_free(state));
	cr_expect_eq(fd_count(), fds_before);
}

int read_from(const struct state *from)
{
	free(got.data);
	got.data = NULL;
	return state_read(from, &got.data, &got.bytes, &got.format);
}

void write_to(struct state *to, const char *text)
{
	cr_assert_eq(state_write(to, text, strlen(text)), 0);
}

void write_text(const char *text)
{
	write_to(state, text);
}

bool says(const struct state *from, const char *text)
{
	cr_assert_eq(read_from(from), 0);
	return got.bytes == strlen(text) && memcmp(got.data, text, got.bytes) == 0;
}

int state_copy(void)
{
	return fcntl(state_fd(state), F_DUPFD_CLOEXEC, 3);
}

struct state *reopen(void)
{
	int fd = state_copy();
	struct state *again = NULL;

	state_error = (struct error){0};
	if (state_open(fd, &again, &state_error) < 0) {
		cr_expect_eq(close(fd), 0, "an error leaves the descriptor alone");
		return NULL;
	}
	return again;
}

bool next_start_says(const char *text)
{
	struct state *again = reopen();
	bool same = again && says(again, text);

	state_free(again);
	return same;
}

void poke(unsigned slot, size_t at, const void *from, size_t count)
{
	cr_assert_eq(pwrite(state_fd(state), from, count, (off_t)(slot * SLOT_BYTES + at)), (ssize_t)count);
}

void peek(unsigned slot, void *to, size_t count)
{
	cr_assert_eq(pread(state_fd(state), to, count, (off_t)(slot * SLOT_BYTES)), (ssize_t)count);
}

void poke_slot(unsigned slot, const struct slot_header *like, const char *text)
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
	poke(slot, 0, &header, sizeof(header));
	poke(slot, sizeof(header), text, strlen(text));
}
