/* Addresses whose memory comes later: one block stands in for it until then. */
#include "client.h"
#include "fork.h"
#include "memory.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

/* Small beside what a standby engine costs anyhow (a context takes 500 MiB), and large enough that 80 GiB are 1,280
 * calls of the driver. */
#define BLOCK_BYTES_MAX MIB(64)

struct gpuwm_reservation {
	struct fork_hook hook;
	struct memory_device device;
	struct memory_range range;
	struct memory_segment block; /* mapped all over the range, until `own` is */
	struct memory_segment own; /* as large as the range */
	bool lost; /* nothing is mapped */
};

/* ---- what is mapped ---------------------------------------------------- */

/* Nothing is mapped in the range: none is when it fails. */
static int stand_in(struct gpuwm_reservation *reservation, struct error *error)
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
static int clear(const struct gpuwm_reservation *reservation, struct memory_segment *segment,
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
static int measure(const struct memory_device *device, uint64_t bytes, uint64_t *ret_block, uint64_t *ret_bytes,
		   struct error *error)
{
	uint64_t unit;
	int r = device->ops->granularity(device, &unit, error);

	if (r < 0)
		return r;
	if (bytes == 0 || bytes > INT64_MAX - BLOCK_BYTES_MAX)
		return error_set(error, -EINVAL, NULL, "%llu bytes is no size of a reservation",
				 (unsigned long long)bytes);
	*ret_block = bytes < BLOCK_BYTES_MAX ? (bytes + unit - 1) / unit * unit : BLOCK_BYTES_MAX;
	*ret_bytes = (bytes + *ret_block - 1) / *ret_block * *ret_block;
	return 0;
}

static int fill(struct gpuwm_reservation *reservation, uint64_t block, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	int r = ops->create(&reservation->device, block, &reservation->block, error);

	if (r == 0)
		r = stand_in(reservation, error);
	if (r == 0)
		r = clear(reservation, &reservation->block, error);
	return r;
}

static void give_up(struct gpuwm_reservation *reservation)
{
	const struct memory_ops *ops = reservation->device.ops;
	struct error unused;

	/* The block is mapped at many places, and knows of the last one only. */
	if (!reservation->lost && (reservation->block.address || reservation->own.address))
		ops->vacate(&reservation->device, &reservation->range,
			    reservation->own.address ? &reservation->own : &reservation->block, 1, &unused);
	ops->unreserve(&reservation->device, &reservation->range, NULL, 0);
	ops->release(&reservation->device, &reservation->block);
	ops->release(&reservation->device, &reservation->own);
	free(reservation);
}

/* Only descriptors: memory that is written is not inherited. */
static void in_child(void *object)
{
	const struct gpuwm_reservation *reservation = object;

	if (reservation->block.fd >= 0)
		close(reservation->block.fd);
	if (reservation->own.fd >= 0)
		close(reservation->own.fd);
}

static int reserve(const char *id, uint64_t bytes, struct gpuwm_reservation **ret, struct error *error)
{
	struct gpuwm_reservation *reservation;
	struct memory_device device;
	uint64_t block = 0, whole = 0;
	int r = memory_device_open(id, &device, error);

	if (r == 0)
		r = measure(&device, bytes, &block, &whole, error);
	if (r < 0)
		return r;
	reservation = calloc(1, sizeof(*reservation));
	if (!reservation)
		return error_set(error, -ENOMEM, NULL, "no memory for a reservation");
	reservation->device = device;
	reservation->block.fd = reservation->own.fd = -1;
	r = device.ops->reserve(&device, whole, NULL, &reservation->range, error);
	if (r == 0)
		r = fill(reservation, block, error);
	if (r < 0) {
		give_up(reservation);
		return r;
	}
	fork_watch(&reservation->hook, in_child, reservation);
	*ret = reservation;
	return 0;
}

int gpuwm_reserve(const char *device, uint64_t bytes, struct gpuwm_reservation **ret_reservation)
{
	struct error error;
	int r = device ? reserve(device, bytes, ret_reservation, &error)
		       : error_set(&error, -EINVAL, "\"host\", or a UUID of gpuwm_devices",
				   "the device is NULL");

	return r < 0 ? client_fail(&error) : 0;
}

void *gpuwm_reservation_address(const struct gpuwm_reservation *reservation, uint64_t *ret_bytes)
{
	if (ret_bytes)
		*ret_bytes = reservation->range.bytes;
	return reservation->range.base;
}

/* ---- occupying --------------------------------------------------------- */

/* The block is unmapped, and there again when it fails; or nothing is. */
static int put_own(struct gpuwm_reservation *reservation, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	struct error unused;
	int r = ops->map_at(&reservation->device, reservation->range.base, &reservation->own, MEMORY_WRITE,
			    error);

	if (r == 0) {
		r = clear(reservation, &reservation->own, error);
		if (r == 0)
			return 0;
		ops->vacate(&reservation->device, &reservation->range, &reservation->own, 1, &unused);
	}
	if (stand_in(reservation, &unused) == 0)
		return r;
	reservation->lost = true;
	return error_set(
		error, -ENOTRECOVERABLE, "end the process",
		"%llu bytes at reserved addresses are gone: neither new memory nor what was there could be "
		"mapped",
		(unsigned long long)reservation->range.bytes);
}

static int replace(struct gpuwm_reservation *reservation, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	int r = ops->vacate(&reservation->device, &reservation->range, &reservation->block, 1, error);

	return r < 0 ? r : put_own(reservation, error);
}

static int occupy(struct gpuwm_reservation *reservation, struct error *error)
{
	const struct memory_ops *ops = reservation->device.ops;
	int r;

	if (reservation->lost)
		return error_set(error, -ENOTRECOVERABLE, "end the process", "the reserved addresses are lost");
	if (reservation->own.address)
		return 0;
	r = ops->idle(&reservation->device, error);
	if (r == 0)
		r = ops->create(&reservation->device, reservation->range.bytes, &reservation->own, error);
	if (r < 0)
		return r;
	r = replace(reservation, error);
	ops->release(&reservation->device, r < 0 ? &reservation->own : &reservation->block);
	return r;
}

int gpuwm_occupy(struct gpuwm_reservation *reservation)
{
	struct error error;
	int r = fork_check(&reservation->hook, &error);

	if (r == 0)
		r = occupy(reservation, &error);
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
	fork_unwatch(&reservation->hook);
	give_up(reservation);
	return 0;
}
