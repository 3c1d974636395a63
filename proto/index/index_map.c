#include "index.h"
#include "../../base/grow.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

/* Asks for the seals first: on a descriptor of a dead FUSE server fstat would hang. If the file is
 * not a memfd, it has no seals. If the call failed for another reason, that says nothing about the
 * index. */
static int check_memfd(int fd, uint64_t bytes, struct error *error)
{
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;

	if (seals < 0 && (errno == EINVAL || errno == EBADF))
		return error_set(error, -EBADMSG, "an index is a sealed memfd",
				 "the descriptor of the index is no memfd");
	if (seals >= 0 && (seals & SEALS_ALL) != SEALS_ALL)
		return error_set(error, -EBADMSG, "seal it with F_SEAL_SEAL, _SHRINK, _GROW and _WRITE",
				 "the index's memfd is not sealed");
	if (seals < 0 || fstat(fd, &status) < 0)
		return error_set(error, -errno, NULL, "the index's memfd could not be looked at: %s",
				 strerror(errno));
	if ((uint64_t)status.st_size != bytes || bytes > INDEX_BYTES_MAX || bytes == 0)
		return error_set(error, -EBADMSG, NULL, "the index's memfd is not of %llu bytes",
				 (unsigned long long)bytes);
	return 0;
}

int index_map_open(int fd, uint64_t bytes, bool trusted, struct index_map *ret_map, struct error *error)
{
	struct index_map map = {.bytes = bytes};
	int r = check_memfd(fd, bytes, error);

	if (r < 0)
		return r;
	map.data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (map.data == MAP_FAILED)
		return error_set(error, -errno, NULL, "mapping an index of %llu bytes: %s",
				 (unsigned long long)bytes, strerror(errno));
	r = trusted ? index_open_trusted(map.data, bytes, &map.view, error)
		    : index_open(map.data, bytes, &map.view, error);
	if (r < 0) {
		munmap(map.data, bytes);
		return r;
	}
	*ret_map = map;
	return 0;
}

void index_map_close(struct index_map *map)
{
	if (map->data)
		munmap(map->data, map->bytes);
	*map = (struct index_map){0};
}
