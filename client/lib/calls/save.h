/* What the steps of gpuwm_save share. save.c has their order, and puts tensors into files; save_header.c makes the headers,
 * save_write.c writes the bytes, save_folder.c makes the folder and gives files their names, and save_sources.c asks gpuwmd whose the
 * files are that would be replaced. */
#ifndef GPUWM_LIB_SAVE_H
#define GPUWM_LIB_SAVE_H

#include "../mapping/attach.h"

#include <limits.h>
#include <sys/types.h>

/* The name of the shards' index of a version with one rank. The loader recognises the index by the end of its name. */
#define SAVE_INDEX_NAME "model.safetensors.index.json"

struct save_tensor {
	struct gpuwm_tensor tensor;
	uint64_t at; /* in the data of its file */
};

/* A file of tensors, all of one rank. */
struct save_file {
	char name[64];
	const struct gpuwm_mapping *mapping;
	bool first; /* the first file of its rank, which has the texts */
	struct save_tensor *tensors; /* of save.tensors */
	size_t count;
	uint64_t bytes;
};

/* A name that the folder gets. Until all are written, the file has a temporary name. */
struct save_name {
	char *name, *temporary;
	dev_t device; /* of the file that this call made */
	ino_t inode;
	bool there; /* it has its name */
	unsigned made; /* the last folders of the name that this call made for it */
};

struct save {
	const struct gpuwm_mapping *const *mappings; /* one of each rank, in their order */
	size_t world;
	struct gpuwm_save_options options;
	const char *path;
	int folder; /* -1: not open yet */
	bool made; /* this call made the folder */
	struct save_tensor *tensors; /* in the order of the files */
	size_t tensor_count;
	struct save_file *files;
	size_t file_count;
	uint64_t bytes; /* of all tensors */
	/* the files of tensors, the small files, the index of shards: the order in which they get their names */
	struct save_name *names;
	size_t name_count;
	struct error *error;
};

static inline const struct index_view *save_view(const struct gpuwm_mapping *mapping)
{
	return &mapping->part->index.view;
}

/* ---- the plan (save.c) ---- */

/* Checks that the mappings are those of all ranks of one version, with all segments. Returns 0. Fails as gpuwm_save does, as all
 * functions here. */
int save_check(struct save *save);
/* Puts every tensor into a file. */
int save_plan(struct save *save);

/* ---- texts (save_header.c) ---- */

/* Makes the header of a file, with its length before it. Sets *ret to memory for free(). */
int save_header(const struct save *save, const struct save_file *file, char **ret, size_t *ret_bytes);
/* Makes the index of all files. */
int save_index(const struct save *save, char **ret, size_t *ret_bytes);

/* ---- bytes (save_write.c) ---- */

/* Writes all files, and waits until the disk has each of them. Calls options.progress. */
int save_write(struct save *save);

/* ---- the folder (save_folder.c) ---- */

/* Opens or makes the folder. Fails with -EEXIST if it has a file that this version would replace, unless options.overwrite says so, or
 * other model files. */
int save_folder_open(struct save *save);
/* Makes a new file of `bytes` under a temporary name that nobody can guess. Sets *ret_fd, which is the caller's. */
int save_folder_create(struct save *save, const char *name, uint64_t bytes, int *ret_fd);
/* Waits until the disk has the file, and closes it. */
int save_folder_finish(const struct save *save, const char *name, int fd);
/* Gives all files their names. Fails with -ESTALE if somebody has put another file in the place of one. */
int save_folder_commit(struct save *save);
/* Closes the folder. If the save failed, removes files with temporary names, files that have their names unless options.overwrite is
 * set, and the folder if this call made it. */
void save_folder_close(struct save *save, bool failed);
/* Fails with -EEXIST if another version has its files in this folder. (save_sources.c) */
int save_check_sources(const struct save *save);
/* Returns whether the folder gets a small file of the version under this name. */
bool save_name_fits(const char *name);

/* Sets the error of a system call that failed on a file of the folder. Returns the error's code. */
int save_failed(const struct save *save, int code, const char *doing, const char *name);

#endif
