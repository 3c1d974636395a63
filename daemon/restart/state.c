#include "state.h"
#include "inherited.h"
#include "../../proto/index/digest.h"
#include "../../base/limits.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

/* Each slot has room for the largest payload, so that nothing ever moves: the memfd is sparse. These stay as
 * they are: the memfd that the store kept was made by an older program. */
#define SLOTS 2
#define PAYLOAD_MAX MIB(64)
#define SLOT_BYTES (sizeof(struct header) + PAYLOAD_MAX)
static_assert(MESSAGE_BODY_MAX <= PAYLOAD_MAX, "what is written has room");
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)

static const char magic[8] = "GPUWMST";

struct header {
	char magic[8];
	uint32_t format;
	uint32_t slots;
	uint64_t generation; /* 0: never written */
	uint64_t bytes;
	struct digest digest; /* of the header without it, and of the payload */
	uint64_t reserved;
};
static_assert(sizeof(struct header) == 56, "the same in every format");
/* At a place that is whole pages of any size. */
#define NOTES_OFFSET MIB(126)
#define NOTES_BYTES MIB(2)
static_assert(SLOT_BYTES + sizeof(struct header) + STATE_BYTES_MAX <= NOTES_OFFSET &&
		      NOTES_OFFSET + NOTES_BYTES <= SLOTS * SLOT_BYTES,
	      "the notes are in the second slot, behind its payload");

struct state {
	int fd;
	unsigned young; /* slot */
	uint64_t generation; /* 0: no slot is valid */
	uint64_t bytes; /* of the young slot's payload */
	void *notes; /* NULL: they are not mapped */
};

static struct digest digest_header(const struct header *header, const void *data)
{
	struct header plain = *header;
	struct digest_sum sum = {0};

	plain.digest = (struct digest){0};
	digest_update(&sum, 0, &plain, sizeof(plain));
	digest_update(&sum, sizeof(plain), data, header->bytes);
	return digest_final(&sum, sizeof(plain) + header->bytes);
}

static off_t slot_offset(unsigned slot)
{
	return (off_t)(slot * SLOT_BYTES);
}

/* ---- reading ---- */

static int state_read_all(int fd, void *data, size_t bytes, off_t offset)
{
	while (bytes > 0) {
		ssize_t got = pread(fd, data, bytes, offset);

		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return got < 0 ? -errno : -EIO;
		data = (char *)data + got;
		offset += got;
		bytes -= (size_t)got;
	}
	return 0;
}

/* 1 with a valid slot's header and payload (malloced); 0: not valid; -EIO, -ENOMEM. */
static int slot_read(int fd, unsigned slot, struct header *ret_header, void **ret_data)
{
	struct header header;
	struct digest digest;
	void *data;
	int r = state_read_all(fd, &header, sizeof(header), slot_offset(slot));

	if (r < 0)
		return r;
	/* No generation could follow the last one, and all that is written then would count for older. */
	if (memcmp(header.magic, magic, sizeof(magic)) != 0 || header.slots != SLOTS || header.format == 0 ||
	    header.bytes > PAYLOAD_MAX || header.generation == UINT64_MAX)
		return 0;
	data = malloc(header.bytes ? header.bytes : 1);
	if (!data)
		return -ENOMEM;
	r = state_read_all(fd, data, header.bytes, slot_offset(slot) + (off_t)sizeof(header));
	if (r == 0) {
		digest = digest_header(&header, data);
		r = digest_equal(&digest, &header.digest);
	}
	if (r <= 0) {
		free(data);
		return r;
	}
	*ret_header = header;
	*ret_data = data;
	return 1;
}

int state_read(const struct state *state, void **ret_data, size_t *ret_bytes, uint32_t *ret_format)
{
	struct header header;
	int r;

	if (state->generation == 0)
		return -ENOENT;
	r = slot_read(state->fd, state->young, &header, ret_data);
	if (r <= 0)
		return r < 0 ? r : -EIO;
	*ret_bytes = header.bytes;
	*ret_format = header.format;
	return 0;
}

/* ---- opening ---- */

static struct state *state_make(int fd)
{
	struct state *state = calloc(1, sizeof(*state));

	if (state)
		*state = (struct state){.fd = fd, .young = SLOTS - 1};
	return state;
}

/* Without them gpuwmd waits its whole grace time after a restart. */
static void state_map_notes(struct state *state)
{
	state->notes = mmap(NULL, NOTES_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, state->fd, NOTES_OFFSET);
	if (state->notes == MAP_FAILED)
		state->notes = NULL;
}

int state_new(struct state **ret)
{
	int fd = memfd_create("gpuwm-state", MFD_CLOEXEC | MFD_ALLOW_SEALING), r = 0;
	struct state *state;

	if (fd < 0)
		return -errno;
	if (ftruncate(fd, slot_offset(SLOTS)) < 0 || fcntl(fd, F_ADD_SEALS, SEALS) < 0)
		r = -errno;
	state = r == 0 ? state_make(fd) : NULL;
	if (!state) {
		close(fd);
		return r < 0 ? r : -ENOMEM;
	}
	state_map_notes(state);
	*ret = state;
	return 0;
}

/* The seals first: only memory answers, and everything else that is asked of memory returns.
 * 1: gpuwmd made it; 0: it did not; -errno: nobody knows. */
static int is_ours(int fd)
{
	int seals = memfd_seals(fd), flags, r;
	uint64_t bytes;

	if (seals < 0 || seals != SEALS)
		return seals == -EINVAL || seals >= 0 ? 0 : seals;
	flags = fcntl(fd, F_GETFL); /* reads a number in memory, and can't fail */
	r = memfd_bytes(fd, &bytes);
	if (r < 0)
		return r;
	return (flags & O_ACCMODE) == O_RDWR && bytes == (uint64_t)slot_offset(SLOTS);
}

/* The younger valid slot. */
static int find_young(struct state *state, uint32_t *ret_format, struct error *error)
{
	for (unsigned slot = 0; slot < SLOTS; slot++) {
		struct header header;
		void *data;
		int r = slot_read(state->fd, slot, &header, &data);

		if (r < 0)
			return error_set(error, r, NULL, "the state can't be read: %s", strerror(-r));
		if (r == 0)
			continue;
		free(data);
		if (header.generation > state->generation) {
			state->generation = header.generation;
			state->young = slot;
			state->bytes = header.bytes;
			*ret_format = header.format;
		}
	}
	if (state->generation == 0)
		return error_set(error, -EUCLEAN, NULL, "neither slot of the state is valid");
	return 0;
}

int state_open(int fd, struct state **ret, struct error *error)
{
	struct state *state;
	uint32_t format = 0;
	int r = is_ours(fd);

	if (r < 0)
		return error_set(error, r, NULL, "the state can't be looked at: %s", strerror(-r));
	if (r == 0)
		return error_set(error, -EUCLEAN, NULL,
				 "what was kept as the state is no memfd of two slots that gpuwmd made");
	state = state_make(fd);
	if (!state)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	r = find_young(state, &format, error);
	if (r == 0 && format > STATE_FORMAT)
		r = error_set(error, -EUCLEAN, "start the gpuwmd that wrote it, or a newer one",
			      "the state is of format %u, this gpuwmd reads up to %u", format, STATE_FORMAT);
	if (r < 0) {
		free(state);
		return r;
	}
	if (state->bytes <= STATE_BYTES_MAX)
		state_map_notes(state);
	*ret = state;
	return 0;
}

void *state_notes(const struct state *state, size_t *ret_bytes)
{
	*ret_bytes = NOTES_BYTES;
	return state->notes;
}

struct state *state_free(struct state *state)
{
	if (state && state->notes)
		munmap(state->notes, NOTES_BYTES);
	if (state)
		close(state->fd);
	free(state);
	return NULL;
}

int state_fd(const struct state *state)
{
	return state->fd;
}

/* ---- writing ---- */

/* What does not fit at once (memory is short) fails at the next try. */
static int write_all(int fd, struct iovec parts[2], off_t offset)
{
	while (parts[0].iov_len + parts[1].iov_len > 0) {
		ssize_t done = pwritev(fd, parts, 2, offset);

		if (done < 0 && errno == EINTR)
			continue;
		if (done <= 0)
			return done < 0 ? -errno : -EIO;
		offset += done;
		for (int i = 0; i < 2; i++) {
			size_t of = (size_t)done < parts[i].iov_len ? (size_t)done : parts[i].iov_len;

			parts[i].iov_base = (char *)parts[i].iov_base + of;
			parts[i].iov_len -= of;
			done -= (ssize_t)of;
		}
	}
	return 0;
}

int state_write(struct state *state, const void *data, size_t bytes)
{
	unsigned slot = (state->young + 1) % SLOTS;
	struct header header = {
		.format = STATE_FORMAT, .slots = SLOTS, .generation = state->generation + 1, .bytes = bytes};
	struct iovec parts[2] = {{&header, sizeof(header)}, {(void *)data, bytes}};
	int r;

	if (bytes > STATE_BYTES_MAX)
		return -EMSGSIZE;
	memcpy(header.magic, magic, sizeof(magic));
	header.digest = digest_header(&header, data);
	r = write_all(state->fd, parts, slot_offset(slot));
	if (r < 0)
		return r;
	state->young = slot;
	state->generation = header.generation;
	return 0;
}
