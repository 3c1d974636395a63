/* A source path becomes open files and the tensors in them: one safetensors
 * file, a folder with such a file or an index of shards (folder.h says which one counts), a Hugging
 * Face snapshot, which is such a folder with links into ../../blobs, or a folder with files per rank
 * (model-rank-R-part-P.safetensors).
 */
#ifndef GPUWM_LOADER_SOURCE_H
#define GPUWM_LOADER_SOURCE_H

#include "beneath.h"
#include "safetensors.h"

#include <sys/stat.h>

struct source_file {
	char *path;
	int fd;
	struct stat stat; /* when it was opened */
	struct safetensors content;
};

struct source_tensor {
	const char *name;
	unsigned dtype, ndim;
	const uint64_t *shape;
	uint32_t file; /* position in files */
	uint64_t offset, bytes; /* in the file */
};

/* A small file of the folder, to travel with the version. */
struct source_extra {
	const char *name;
	void *data;
	size_t bytes;
};

/* What one rank of the version holds: a range of files and of tensors. */
struct source_rank {
	size_t file, file_count;
	size_t tensor, tensor_count;
	uint64_t bytes;
};

struct source {
	struct source_file *files;
	size_t file_count;
	struct source_tensor *tensors; /* in the order of files, then offsets */
	size_t tensor_count;
	uint64_t bytes; /* of all tensors */
	struct source_rank *ranks;
	uint32_t world; /* how many; 1 unless the files are per rank */
	struct source_extra *extras;
	size_t extra_count;
	char warning[TEXT_BYTES_MAX + 1]; /* "" when all is as it should be */
};

/* Opens everything and parses all headers. A folder's small files come along.
 * -ENOENT, -EACCES (see beneath_open), -EINVAL: no regular file or folder, or a folder with several models; -EBADMSG: a
 * file is damaged, or does not belong to its neighbours; -ENOTSUP: another format, or beyond a limit of gpuwm's own; -EFBIG:
 * small files above INDEX_FILES_BYTES_MAX; -EIO: reading failed, or the file was written meanwhile. */
int source_open(const char *path, const struct roots *roots, struct source *ret, struct error *error);
/* A zeroed one is fine. */
void source_close(struct source *source);

/* What a program further in needs of one file; used by source_open. */
int source_file_open(const struct roots *roots, const char *path, struct source_file *ret, struct error *error);
int source_file_parse(struct source_file *file, struct error *error);
void source_file_close(struct source_file *file);
/* All of a range, through the page cache. -EIO naming file and byte: reading failed, or the file ends before. */
int source_file_read_at(const struct source_file *file, void *to, size_t bytes, uint64_t offset,
			struct error *error);
/* The whole content of a file of at most `limit` bytes, with a zero byte after
 * it; free it. -EFBIG; -EIO as source_file_unchanged. */
int source_file_read(const struct source_file *file, uint64_t limit, char **ret_data, struct error *error);
/* "folder/name"; free it. NULL: out of memory. */
char *source_path(const char *folder, const char *name);
/* Compares the file's size, time of writing (mtime) and time of change (ctime) with what they were when it was opened. A user
 * who may write the file can set mtime back, but not ctime. -EIO, naming the file and what differs. */
int source_file_unchanged(const struct source_file *file, struct error *error);

/* In shards.c. shards_open opens and parses the shards that an index names, into source->files. When their tensors are
 * gathered, shards_check compares them with the same map, which was read once since the index may change meanwhile. */
struct weight_map;
int shards_open(const struct roots *roots, const char *folder, const struct source_file *index,
		const struct weight_map *map, struct source *source, struct error *error);
int shards_check(const struct source_file *index, struct source *source, const struct weight_map *map,
		 struct error *error);
/* Sets *ret_sorted to these tensors in the order of their names; the caller frees it. -EBADMSG: two have the same name. */
int shards_sort(const struct source *source, size_t first, size_t count,
		const struct source_tensor ***ret_sorted, struct error *error);

/* In ranks.c. ranks_open opens and parses the files per rank of a folder, into source->files and source->ranks. When their
 * tensors are gathered, ranks_place finds which tensors belong to which rank. -ENOENT without an error set: the folder has
 * no such files. With an error that names the file: -ENOENT: one is missing; -EINVAL: other files are beside them;
 * -EBADMSG: a rank has a tensor twice. */
struct folder;
int ranks_open(const struct roots *roots, const struct folder *folder, struct source *source,
	       struct error *error);
int ranks_place(struct source *source, struct error *error);

#endif
