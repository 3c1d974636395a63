/* What a folder has that a model can be loaded from, and which of it is loaded. */
#ifndef GPUWM_LOADER_FOLDER_H
#define GPUWM_LOADER_FOLDER_H

#include "../proto/errors.h"

#include <stdbool.h>
#include <stddef.h>

#define FOLDER_FILE_NAME "model.safetensors"
#define FOLDER_INDEX_NAME "model.safetensors.index.json"

struct source_file;

struct folder {
	const char *path; /* the source file's */
	char **names; /* safetensors, their indices, and what other formats' files are named; in order */
	size_t count;
};

/* Lists it; folder_clear what came. Hidden files are left out: those are other programs' unfinished ones. -errno naming the folder. */
int folder_list(const struct source_file *file, struct folder *ret, struct error *error);
/* A zeroed one is fine. */
void folder_clear(struct folder *folder);

/* NAME.safetensors, and NAME.safetensors.index.json. */
bool folder_is_file(const char *name);
bool folder_is_index(const char *name);

/* The name of the file or index to load: model.safetensors, else model.safetensors.index.json, as transformers has it; else
 * the only index; else the only file, as diffusers names them otherwise. If model.safetensors is there beside its index, the text (TEXT_BYTES_MAX + 1
 * bytes, "" otherwise) says so. -ENOENT: there is none; -ENOTSUP: another format's file is there; -EINVAL naming them: there are several. */
int folder_choose(const struct folder *folder, const char **ret_name, char *ret_warning, struct error *error);

#endif
