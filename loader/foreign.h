/* Files that are no safetensors: what they are instead, and what helps. */
#ifndef GPUWM_LOADER_FOREIGN_H
#define GPUWM_LOADER_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* As many of a file's first bytes tell the formats apart: tar says what it is at byte 257. */
#define FOREIGN_PEEK_BYTES 512

struct foreign {
	const char *what; /* "a GGUF file", for behind "is" */
	const char *remedy;
};

/* Judges the first bytes of a file (up to FOREIGN_PEEK_BYTES of them), then the end of its name. NULL: neither tells
 * anything. Some first bytes are those of safetensors files too: call this function only for what is none. */
const struct foreign *foreign_format(const char *path, const uint8_t *peek, size_t bytes);
/* A JSON text: an index of shards is one. */
bool foreign_is_json(const struct foreign *foreign);
/* By the end of its name alone. */
const struct foreign *foreign_name(const char *path);

#endif
