/* A source: from a path to open files and the tensors in them. The path leads to one of these: a
 * file of a format (format.h); a folder with such a file or with an index of shards (folder.h says
 * which one counts); a Hugging Face snapshot, which is such a folder with links into ../../blobs; a
 * folder with files per rank (model-rank-R-part-P.safetensors). */
#ifndef GPUWM_LOADER_SOURCE_H
#define GPUWM_LOADER_SOURCE_H

#include "format.h"
#include "lease.h"
#include "roots.h"

#include "../../memory/memory.h"
#include "../../proto/wire/messages_jobs.h"

#include <sys/stat.h>

struct source_file {
	char *path;
	int fd;
	struct stat stat; /* when the file was opened */
	struct file_lease lease; /* of a regular file */
	struct format_content content;
};

struct source_tensor {
	const char *name;
	unsigned dtype, ndim;
	const uint64_t *shape;
	uint32_t file; /* the position of its file in `files` */
	uint64_t offset, bytes; /* offset in the file */
};

/* A file of the folder that goes with the version. */
struct source_extra {
	char *name; /* beneath the folder, with '/' between subfolders */
	void *data;
	size_t bytes;
};

/* The files and tensors of one rank of the version, as ranges of both arrays. */
struct source_rank {
	size_t file, file_count;
	size_t tensor, tensor_count;
	uint64_t bytes;
};

/* A folder with more than it needs, an index with wrong figures, a choice of tensors, writers that would not be seen. */
#define SOURCE_NOTES_MAX 4
/* Reasons for which files of the folder are left out (extras.h). */
#define SOURCE_LEFT_MAX 12

struct source {
	struct source_file folder; /* zeroed: the source is a file */
	char *index; /* the name of the index of shards; NULL: there is none */
	struct source_file *files;
	size_t file_count;
	struct source_tensor *tensors; /* in the order of the files, then of the offsets */
	size_t tensor_count;
	uint64_t bytes; /* the bytes of all tensors */
	struct source_rank *ranks;
	uint32_t world; /* the number of ranks; 1 unless the files are per rank */
	struct source_extra *extras;
	size_t extra_count;
	char notes[SOURCE_NOTES_MAX]
		  [TEXT_BYTES_MAX + 1]; /* for whoever loads it; those behind the last are "" */
	char left[SOURCE_LEFT_MAX][TEXT_BYTES_MAX + 1]; /* notes of source_read_extras, likewise */
};

/* Opens all files and parses all headers. choice: what of it is wanted. The
 * source has only the tensors that match one of the globs `only`, if there are any, which are those of Python's fnmatch. To cut
 * it is the caller's.
 *
 * Returns 0 and sets *ret, for source_close.
 *
 * Fails with
 *   -ENOENT, -EACCES  See beneath_open. -ENOENT also if a glob matches no tensor.
 *   -EINVAL           The path is not a regular file or a folder, or the folder has several models.
 *   -EBADMSG          A file is damaged, or does not belong to its neighbours.
 *   -ENOTSUP          A file has another format, or exceeds a limit of gpuwm.
 *   -EBUSY            Somebody has a file open or mapped for writing.
 *   -EIO              Reading failed, or somebody wrote the file meanwhile. */
int source_open(const char *path, const struct load_choice *choice, const struct roots *roots,
		struct source *ret, struct error *error);
/* Closes and frees everything. A zeroed source is fine. */
void source_close(struct source *source);
/* Reads the files of the folder that are not weights into `extras`, within INDEX_FILES_BYTES_MAX: regular files at any depth, and
 * links to such files in the folder, or, from a snapshot of the hub's cache, in its repository's blobs. What is left out is in the
 * notes `left`, with sizes and a reason. roots: those of source_open. Returns 0. Fails with -ENOMEM only. */
int source_read_extras(struct source *source, const struct roots *roots, struct error *error);
/* Adds a note. */
void source_note(struct source *source, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Looks whether somebody has opened a file of the source for writing, as source_file_unchanged does, and at nothing else. It is
 * cheap: a copy asks all the time, because the writer waits. */
int source_check_leases(const struct source *source, struct error *error);
/* Nobody reads the source's files any more: whoever wants to write them need not wait. */
void source_give_back_leases(struct source *source);

/* Opens one file, and takes a lease on it. source_file_parse reads its header. source_open uses both. */
int source_file_open(const struct roots *roots, const char *path, struct source_file *ret, struct error *error);
int source_file_parse(struct source_file *file, struct error *error);
void source_file_close(struct source_file *file);
/* Reads all of a range, through the page cache. Returns 0. Fails with -EIO if reading failed or the
 * file ends before; the message names the file and the byte. */
int source_file_read_at(const struct source_file *file, void *to, size_t bytes, uint64_t offset,
			struct error *error);
/* Reads the whole content of a file of at most `limit` bytes, and puts a zero byte behind it.
 * Returns 0 and sets *ret_data, for free(). Fails with -EFBIG, and with -EIO as
 * source_file_unchanged does. */
int source_file_read(const struct source_file *file, uint64_t limit, char **ret_data, struct error *error);
/* Returns "folder/name", for free(), or NULL if there is no memory. */
char *source_path(const char *folder, const char *name);
/* Compares the file's size, time of writing (mtime) and time of change (ctime) with what they were
 * when it was opened. A user who may write the file can set mtime back, but not ctime. Writes through a mapping change
 * neither: the lease tells of those, if there is one. Returns 0. Fails with -EIO; the message names the file and what
 * differs. */
int source_file_unchanged(const struct source_file *file, struct error *error);

/* In shards.c. shards_open opens and parses the shards that an index names, into source->files.
 * When their tensors are gathered, shards_check compares them with the same map. The index was read
 * only once, since it may change meanwhile. */
struct weight_map;
int shards_open(const struct roots *roots, const char *folder, const struct source_file *index,
		const struct weight_map *map, struct source *source, struct error *error);
int shards_check(const struct source_file *index, struct source *source, const struct weight_map *map,
		 struct error *error);
/* Sets *ret_sorted to these tensors in the order of their names. The caller frees it. Fails with
 * -EBADMSG if two have the same name. */
int shards_sort(const struct source *source, size_t first, size_t count,
		const struct source_tensor ***ret_sorted, struct error *error);

/* In ranks.c. ranks_open opens and parses the files per rank of a folder, into source->files and
 * source->ranks. When their tensors are gathered, ranks_place finds out which tensors belong to
 * which rank.
 *
 * If the folder has no such files, ranks_open fails with -ENOENT and sets no error. Otherwise the
 * error names the file: -ENOENT if one is missing, -EINVAL if other files are beside them, -EBADMSG
 * if a rank has a tensor twice. */
struct folder;
int ranks_open(const struct roots *roots, const struct folder *folder, struct source *source,
	       struct error *error);
int ranks_place(struct source *source, struct error *error);

/* ---- the page cache (residency.c) ----
 *
 * How much of a source lies in the page cache. */

/* One sample stands for this many bytes. So a large file costs some ms, and for a small one the
 * answer is coarse. */
#define RESIDENCY_SAMPLE_BYTES MIB(2)

/* Sets *ret to how many bytes of all tensors are in the page cache, estimated from samples. Holes of
 * sparse files do not count, since nothing has read them from a disk. If a sample is not in the
 * cache, the kernel reads a page around it, so each call takes its samples at other places. It
 * calls progress with 0 after each sample.
 *
 * Returns 0. If progress returns nonzero, returns that. Fails with -EOPNOTSUPP, and names the file,
 * if its file system does not say what is cached. */
int residency_of(const struct source *source, memory_progress_fn *progress, void *user_data, uint64_t *ret,
		 struct error *error);

#endif
