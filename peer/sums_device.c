#include "sums.h"

#include <errno.h>
#include <stdlib.h>

#define LEAVES_MAX (SUMS_DEVICE_PIECES * SUMS_PIECE_LEAVES)

_Static_assert(SUM_BYTES == MEMORY_SHA256_BYTES, "a leaf's sum is its SHA-256");

struct sums_device {
	const struct memory_ops *ops;
	struct memory_hasher *hasher;
	struct memory_span leaves[LEAVES_MAX];
	uint8_t sums[LEAVES_MAX][SUM_BYTES];
};

int sums_device_open(const struct memory_device *device, struct sums_device **ret, struct error *error)
{
	struct sums_device *sums;
	int r;

	if (!device->ops->hasher_open)
		return 1;
	sums = malloc(sizeof(*sums));
	if (!sums)
		return error_set(error, -ENOMEM, NULL, "no memory for the sums of what a GPU hashes");
	sums->ops = device->ops;
	r = device->ops->hasher_open(device, LEAVES_MAX, &sums->hasher, error);
	if (r == 0)
		*ret = sums;
	else
		free(sums);
	return r;
}

struct sums_device *sums_device_close(struct sums_device *sums)
{
	if (sums)
		sums->ops->hasher_close(sums->hasher);
	free(sums);
	return NULL;
}

static size_t leaf_count(const struct memory_span *piece)
{
	return (piece->bytes + SUMS_LEAF_BYTES - 1) / SUMS_LEAF_BYTES;
}

/* Returns how many leaves the piece has. */
static size_t cut_leaves(const struct memory_span *piece, struct memory_span *ret)
{
	size_t count = leaf_count(piece);

	for (size_t i = 0; i < count; i++) {
		uint64_t left = piece->bytes - i * SUMS_LEAF_BYTES;

		ret[i] = (struct memory_span){(const uint8_t *)piece->address + i * SUMS_LEAF_BYTES,
					      left < SUMS_LEAF_BYTES ? left : SUMS_LEAF_BYTES};
	}
	return count;
}

int sums_device_run(struct sums_device *sums, const struct memory_span *pieces, size_t count, struct sum *ret,
		    struct error *error)
{
	size_t leaves = 0, at = 0;
	int r;

	for (size_t i = 0; i < count; i++)
		leaves += cut_leaves(&pieces[i], &sums->leaves[leaves]);
	r = sums->ops->hasher_run(sums->hasher, sums->leaves, leaves, sums->sums, error);
	if (r < 0)
		return r;
	for (size_t i = 0; r == 0 && i < count; at += leaf_count(&pieces[i++]))
		r = sums_plain(sums->sums[at], leaf_count(&pieces[i]) * SUM_BYTES, &ret[i]);
	return r < 0 ? error_set(error, r, NULL, "no memory for the sums of a version's pieces") : 0;
}
