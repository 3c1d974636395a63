/* Addresses whose memory comes later: one block stands in for it until then. */
#include "../request/client.h"
#include "../../../base/clock.h"
#include "../../../base/fork.h"
#include "../../../memory/memory.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

/* Small beside a GPU where another engine has filled the rest, and large enough that 80 GiB are 1,280 calls of the
 * driver. */
#define BLOCK_BYTES_MAX MIB(64)

/* What is taken at a time: a part of what a dying process gives back is cleared by the GPU while the next part is still
 * its own. A multiple of the block. */
#define PIECE_BYTES_MAX GIB(1)

#define BYTES_MAX GIB(131072) /* as many as a process has addresses */

/* Between two tries: short beside the 100 ms in which a process with a GPU ends, long beside a call of the driver. */
#define TRY_AGAIN_MS 2

struct gpuwm_reservation {
	struct fork_hook hook;
	struct memory_device device;
	struct memory_range range;
	struct memory_segment block; /* mapped all over the range, until it is vacated */
	struct memory_segment *pieces; /* one after the other, all but the last of PIECE_BYTES_MAX */
	uint32_t piece_count;
	bool occupied; /* all pieces are mapped, or none */
};

/* ---- what is mapped ---------------------------------------------------- */

/* Nothing is mapped in the range: none is when it fails. */
static int block_stand_in(struct gpuwm_reservation *reservation, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	int r = 0;
	uint64_t done = 0;

	while (r == 0 && done < reservation->range.bytes) {
		r = ops->map_at(&reservation->device, (char *)reservation->range.base + done,
				&reservation->block, MEMORY_WRITE, error);
		if (r == 0)
			done += reservation->block.bytes;
	}
	if (r < 0 && done > 0) {
		const struct memory_range begun = {reservation->range.base, done};
		struct error unused;

		ops->vacate(&reservation->device, &begun, &reservation->block, 1, &unused);
	}
	return r;
}

/* Inside the device's context. */
static int segment_clear(const struct gpuwm_reservation *reservation, struct memory_segment *segment,
			 struct error *error)
{
	int r = reservation->device.ops->enter(&reservation->device, error);

	if (r < 0)
		return r;
	r = reservation->device.ops->zero(&reservation->device, segment, error);
	reservation->device.ops->leave(&reservation->device);
	return r;
}

/* ---- reserving --------------------------------------------------------- */

/* Whole blocks. */
static int reservation_measure(const struct memory_device *device, uint64_t bytes, uint64_t *ret_block,
			       uint64_t *ret_bytes, struct error *error)
{
	uint64_t unit;
	int r = device->ops->granularity(device, &unit, error);

	if (r < 0)
		return r;
	if (bytes == 0 || bytes > BYTES_MAX)
		return error_set(error, -EINVAL, NULL, "%llu bytes is no size of a reservation",
				 (unsigned long long)bytes);
	*ret_block = bytes < BLOCK_BYTES_MAX ? (bytes + unit - 1) / unit * unit : BLOCK_BYTES_MAX;
	*ret_bytes = (bytes + *ret_block - 1) / *ret_block * *ret_block;
	return 0;
}

/* A child that is forked meanwhile closes the descriptors that in_child finds, so each has to be there by then. */
static int segment_create(struct gpuwm_reservation *reservation, uint64_t bytes, struct memory_segment *ret,
			  struct error *error)
{
	int r;

	fork_lock();
	r = reservation->device.ops->create(&reservation->device, bytes, ret, error);
	fork_unlock();
	return r;
}

/* A child that is made now must not close the number, which may be another file's by then. */
static void segment_release(struct gpuwm_reservation *reservation, struct memory_segment *segment)
{
	struct memory_segment taken;

	fork_lock();
	taken = *segment;
	*segment = (struct memory_segment){.fd = -1};
	fork_unlock();
	reservation->device.ops->release(&reservation->device, &taken);
}

static void pieces_release(struct gpuwm_reservation *reservation)
{
	for (uint32_t i = 0; i < reservation->piece_count; i++)
		segment_release(reservation, &reservation->pieces[i]);
}

static void reservation_free(struct gpuwm_reservation *reservation)
{
	const struct memory_ops *ops = reservation->device.ops;
	struct error unused;

	/* The block is mapped at many places, and knows of the last one only. */
	if (reservation->block.address)
		ops->vacate(&reservation->device, &reservation->range, &reservation->block, 1, &unused);
	ops->unreserve(&reservation->device, &reservation->range, reservation->pieces,
		       reservation->piece_count);
	segment_release(reservation, &reservation->block);
	pieces_release(reservation);
	fork_unwatch(&reservation->hook);
	free(reservation->pieces);
	free(reservation);
}

/* Only descriptors: memory that is written is not inherited. */
static void in_child(void *object)
{
	const struct gpuwm_reservation *reservation = object;

	if (reservation->block.fd >= 0)
		close(reservation->block.fd);
	for (uint32_t i = 0; i < reservation->piece_count; i++)
		if (reservation->pieces[i].fd >= 0)
			close(reservation->pieces[i].fd);
}

/* None is made yet. -ENOMEM. */
static int pieces_plan(struct gpuwm_reservation *reservation, uint64_t bytes, struct error *error)
{
	const uint64_t count = (bytes + PIECE_BYTES_MAX - 1) / PIECE_BYTES_MAX;

	reservation->block.fd = -1;
	reservation->pieces = calloc(count, sizeof(*reservation->pieces));
	if (!reservation->pieces)
		return error_set(error, -ENOMEM, NULL, "no memory for a reservation");
	reservation->piece_count = (uint32_t)count;
	for (uint64_t i = 0; i < count; i++)
		reservation->pieces[i].fd = -1;
	return 0;
}

static int reservation_new(const char *id, uint64_t bytes, struct gpuwm_reservation **ret, struct error *error)
{
	struct gpuwm_reservation *reservation;
	struct memory_device device;
	uint64_t block = 0, whole = 0;
	int r = memory_device_open(id, &device, error);

	if (r == 0)
		r = reservation_measure(&device, bytes, &block, &whole, error);
	if (r < 0)
		return r;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return error_set(error, -ENOMEM, NULL, "no memory for a reservation");
	reservation->device = device;
	r = pieces_plan(reservation, whole, error);
	fork_watch(&reservation->hook, in_child, reservation);
	if (r == 0)
		r = device.ops->reserve(&device, whole, NULL, &reservation->range, error);
	if (r == 0)
		r = segment_create(reservation, block, &reservation->block, error);
	if (r == 0)
		r = block_stand_in(reservation, error);
	if (r == 0)
		r = segment_clear(reservation, &reservation->block, error);
	if (r < 0) {
		reservation_free(reservation);
		return r;
	}
	*ret = reservation;
	return 0;
}

int gpuwm_reserve(const char *device, uint64_t bytes, struct gpuwm_reservation **ret_reservation)
{
	struct error error;
	int r = device ? reservation_new(device, bytes, ret_reservation, &error)
		       : error_set(&error, -EINVAL, "\"host\", or the UUID of one of gpuwmd's devices",
				   "no device was given");

	return r < 0 ? client_fail(&error) : 0;
}

void *gpuwm_reservation_address(const struct gpuwm_reservation *reservation, uint64_t *ret_bytes)
{
	if (ret_bytes)
		*ret_bytes = reservation->range.bytes;
	return reservation->range.base;
}

/* ---- occupying --------------------------------------------------------- */

/* Again and again where there is no room, until the deadline. */
static int piece_make(struct gpuwm_reservation *reservation, uint32_t position, int64_t deadline,
		      struct error *error)
{
	const uint64_t left = reservation->range.bytes - position * PIECE_BYTES_MAX;
	const uint64_t bytes = left < PIECE_BYTES_MAX ? left : PIECE_BYTES_MAX;
	int r;

	while ((r = segment_create(reservation, bytes, &reservation->pieces[position], error)) == -ENOSPC &&
	       clock_left(deadline) != 0)
		poll(NULL, 0, TRY_AGAIN_MS);
	if (r == -ENOSPC)
		return error_set(error, -ENOSPC, error->detail,
				 "of %llu bytes on %s the last %llu are missing: there is no room",
				 (unsigned long long)reservation->range.bytes, reservation->device.id,
				 (unsigned long long)left);
	return r;
}

static void pieces_take_back(struct gpuwm_reservation *reservation)
{
	struct error unused;

	for (uint32_t i = 0; i < reservation->piece_count; i++) {
		struct memory_segment *piece = &reservation->pieces[i];
		const struct memory_range place = {piece->address, piece->bytes};

		if (piece->address)
			reservation->device.ops->vacate(&reservation->device, &place, piece, 1, &unused);
	}
	pieces_release(reservation);
}

/* Puts memory at all places, or at none when it fails. */
static int pieces_put(struct gpuwm_reservation *reservation, int64_t deadline, struct error *error)
{
	const struct memory_device *device = &reservation->device;
	int r = 0;

	for (uint32_t i = 0; i < reservation->piece_count && r == 0; i++) {
		struct memory_segment *piece = &reservation->pieces[i];
		char *place = (char *)reservation->range.base + i * PIECE_BYTES_MAX;

		r = piece_make(reservation, i, deadline, error);
		if (r == 0)
			r = device->ops->map_at(device, place, piece, MEMORY_WRITE, error);
		if (r == 0)
			r = segment_clear(reservation, piece, error);
	}
	if (r < 0)
		pieces_take_back(reservation);
	reservation->occupied = r == 0;
	return r;
}

/* Nothing is done if the block is gone. */
static int block_vacate(struct gpuwm_reservation *reservation, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	int r;

	if (!reservation->block.address)
		return 0;
	r = ops->idle(&reservation->device, error);
	if (r == 0)
		r = ops->vacate(&reservation->device, &reservation->range, &reservation->block, 1, error);
	if (r == 0)
		segment_release(reservation, &reservation->block);
	return r;
}

int gpuwm_vacate(struct gpuwm_reservation *reservation)
{
	struct error error;
	int r = fork_check(&reservation->hook, &error);

	if (r == 0)
		r = block_vacate(reservation, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_occupy(struct gpuwm_reservation *reservation, int64_t wait_ms)
{
	struct error error;
	int64_t deadline = clock_deadline(wait_ms);
	int r = fork_check(&reservation->hook, &error);

	if (r == 0 && reservation->occupied)
		return 0;
	if (r == 0)
		r = block_vacate(reservation, &error);
	if (r == 0)
		r = pieces_put(reservation, deadline, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_reservation_free(struct gpuwm_reservation *reservation)
{
	struct error error;
	int r;

	if (!reservation)
		return 0;
	r = fork_check(&reservation->hook, &error);
	if (r == 0)
		r = reservation->device.ops->idle(&reservation->device, &error);
	if (r < 0 && r != -EIO) /* in a broken context nothing runs any more */
		return client_fail(&error);
	reservation_free(reservation);
	return 0;
}
