/* What others ask of a part that is mapped. */
#include "mapped_part.h"

#include <errno.h>

const struct memory_segment *mapped_part_segment(const struct mapped_part *part, uint32_t segment)
{
	return subset_has(&part->subset, segment) ? &part->segments[part->subset.place[segment]] : NULL;
}

int mapped_part_populate(struct mapped_part *part, struct error *error)
{
	return part->device.ops->populate(&part->device, part->segments, part->segment_count, error);
}

int mapped_part_check(const struct mapped_part *part, struct error *error)
{
	if (!part->lost)
		return 0;
	return error_set(
		error, -ENOTRECOVERABLE, "detach, or switch again",
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
