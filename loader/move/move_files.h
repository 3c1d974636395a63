/* The tensors of a part in the files that describe it, and the tensor of the index that each belongs to. */
#ifndef GPUWM_LOADER_MOVE_FILES_H
#define GPUWM_LOADER_MOVE_FILES_H

#include "move_internal.h"

/* Tensors of the source, and for each its position in the index. */
struct files_list {
	struct source_tensor *tensors;
	uint32_t *index;
	size_t count;
	uint64_t bytes;
};

struct move_files {
	struct move *move;
	struct source source;
	struct cut cut; /* of the source, if the job's version was cut */
	/* plain: the bytes lie in memory as in the file, or as in the share of a cut; strided: in another order */
	struct files_list plain, strided;
};

/* Opens the job's source, cuts it if the job has a cut plan, and finds every tensor of the index in it, by name, dtype and shape. The
 * caller calls files_close, also after an error. Returns 0. Fails as source_open does, and with -EBADMSG if a tensor is missing or
 * differs in dtype or shape. */
int files_open(struct move_files *files);
void files_close(struct move_files *files);

/* files_first returns the position of the rank's first tensor among the digests of a copy. files_digests returns how many digests the
 * copy has. */
size_t files_first(const struct move_files *files);
size_t files_digests(const struct move_files *files);

/* Reads the strided tensors, and compares their digests with the index. Puts them into the new memory, if `writes`. Returns 0. Fails as
 * move_run does. */
int files_strided(struct move_files *files, bool writes);

/* Compares a tensor that was read from its file with the index. Returns 0. Fails with -EBADMSG; the message names the tensor and the
 * file. Any thread. */
int files_compare(const struct move_files *files, const struct source_tensor *tensor, uint32_t position,
		  const struct digest *digest, struct error *error);

/* Returns where a tensor of the index lies in the new memory. */
void *files_place(const struct move *move, uint32_t position);

#endif
