#include "publishers.h"
#include "../../restart/inherited.h"
#include "../../../base/grow.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int make_one(const char *name, struct error *error)
{
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);

	return fd >= 0 ? fd
		       : error_set(error, -errno, NULL, "gpuwmd could not make a memfd: %s", strerror(errno));
}

int given_make(struct given *ret, struct error *error)
{
	int index, segment = make_one("gpuwm-segment", error);

	if (segment < 0)
		return segment;
	index = make_one("gpuwm-index", error);
	if (index < 0) {
		close(segment);
		return index;
	}
	*ret = (struct given){segment, index};
	return 0;
}

/* The publisher has it too, but can't change it any more. */
static int given_look_at_memfd(const char *what, int fd, uint64_t *ret_bytes, struct error *error)
{
	int seals = memfd_seals(fd), r;

	if (seals >= 0 && (seals & SEALS_ALL) != SEALS_ALL)
		return error_set(error, -EBADMSG,
				 "unmap it, then set F_SEAL_WRITE, F_SEAL_GROW, F_SEAL_SHRINK and F_SEAL_SEAL",
				 "the %s lacks seals: it can still be changed", what);
	r = seals < 0 ? seals : memfd_bytes(fd, ret_bytes);
	return r < 0 ? error_set(error, r, NULL, "the %s could not be looked at: %s", what, strerror(-r)) : 0;
}

int given_look(const struct given *given, struct publish_checked *ret, struct error *error)
{
	uint64_t segment = 0, index = 0;
	int r = given_look_at_memfd("segment", given->segment, &segment, error);

	if (r == 0)
		r = given_look_at_memfd("index", given->index, &index, error);
	if (r < 0)
		return r;
	if (index == 0 || index > INDEX_BYTES_MAX || segment == 0)
		return error_set(error, -EBADMSG, NULL, "an index of %llu bytes, and a segment of %llu",
				 (unsigned long long)index, (unsigned long long)segment);
	ret->part.index = (struct part_fd){given->index, index};
	ret->part.segments[0] = (struct part_fd){given->segment, segment};
	ret->part.segment_count = 1;
	return 0;
}
