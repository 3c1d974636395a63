#include "index.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#define SEALS (F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE)

int index_map_open(int fd, uint64_t bytes, bool trusted, struct index_map *ret_map, struct error *error)
{
	struct index_map map = {.bytes = bytes};
	/* First: on a descriptor of a dead FUSE server fstat would hang. */
	int seals = fcntl(fd, F_GET_SEALS);
	struct stat status;
	int r;

	if (seals < 0 && errno != EINVAL && errno != EBADF)
		return error_set(error, -errno, NULL, "asking for the seals of the index failed: %s",
				 strerror(errno));
	if (seals < 0)
		return error_set(error, -EBADMSG, NULL, "the index's descriptor is no memfd");
	if ((seals & SEALS) != SEALS)
		return error_set(error, -EBADMSG, "seal it with F_SEAL_SEAL, _SHRINK, _GROW and _WRITE",
				 "the index's memfd is not sealed");
	if (fstat(fd, &status) < 0)
		return error_set(error, -errno, NULL, "fstat of the index failed: %s", strerror(errno));
	if ((uint64_t)status.st_size != bytes || bytes > INDEX_BYTES_MAX || bytes == 0)
		return error_set(error, -EBADMSG, NULL, "the index's memfd is not of %llu bytes",
				 (unsigned long long)bytes);
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
