/* Mapped parts: copies by legacy CUDA IPC, and what others ask of a part. */
#include "mapped_part.h"

#include <errno.h>
#include <string.h>

/* ---- copies ---- */

/* A new copy of the version may have been made after the holder of the old one was lost. */
bool mapped_part_is_copy(const struct mapped_part *part, const struct memory_copy *copy)
{
	if (!part->copied || !copy)
		return part->copied == (copy != NULL);
	return memcmp(&part->copy_event, &copy->event, sizeof(part->copy_event)) == 0;
}

/* The context is kept in being until the part is freed: what is opened ends with it. Under part->lock. */
int mapped_part_open_copy(struct mapped_part *part, const struct memory_copy *copy, struct memory_segment *to,
			  struct error *error)
{
	int r = part->device.ops->hold(&part->device, error);

	if (r < 0)
		return r;
	part->held = true;
	for (uint32_t i = 0; i < copy->count && r == 0; i++) {
		if (subset_has(&part->subset, i))
			r = memory_ipc_open(&part->device, copy, i, to++, error);
	}
	return r;
}

int mapped_part_check_moves(const struct mapped_part *part, struct error *error)
{
	if (!part->copied)
		return 0;
	return error_set(
		error, -ENOTSUP, "let it go and attach anew, or attach by descriptors",
		"%s is attached by cuda_ipc: the driver opens handles at addresses of its choice, so no other "
		"version can come to the same ones",
		part->label);
}

/* ---- what others ask of a part that is mapped ---- */

const struct memory_segment *mapped_part_segment(const struct mapped_part *part, uint32_t segment)
{
	return subset_has(&part->subset, segment) ? &part->segments[part->subset.place[segment]] : NULL;
}

int mapped_part_populate(struct mapped_part *part, struct error *error)
{
	return part->device.ops->populate(&part->device, part->segments, part->segment_count, error);
}

int mapped_part_is_away(const struct mapped_part *part, struct error *error)
{
	return error_set(error, -ENODATA, "unpark it first", "%s is parked: nothing is mapped", part->label);
}

int mapped_part_check(const struct mapped_part *part, struct error *error)
{
	if (part->vacated)
		return mapped_part_is_away(part, error);
	if (!part->lost)
		return 0;
	return error_set(
		error, -ENOTRECOVERABLE, "let it go, or switch again",
		"the mapping was lost: a switch or an exchange failed, and the old version could not be put back");
}

int mapped_part_hold(struct mapped_part *part, struct error *error)
{
	int r = 0;

	pthread_mutex_lock(&part->lock);
	if (!part->held)
		r = part->device.ops->hold(&part->device, error);
	part->held = r == 0;
	pthread_mutex_unlock(&part->lock);
	return r;
}
