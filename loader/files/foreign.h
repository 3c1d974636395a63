/* Files of no format that the loader reads: what they are instead, and what helps. */
#ifndef GPUWM_LOADER_FOREIGN_H
#define GPUWM_LOADER_FOREIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct foreign {
	const char *what; /* "a GGUF file": messages say that the file is `what` */
	const char *remedy;
};

/* Returns the format of a file by its first bytes (up to FORMAT_HEAD_BYTES of them) or by the end of
 * its name, or NULL if neither is known. Call it only for a file that no format of format.h knows: a
 * safetensors file may begin with some of these bytes too. */
const struct foreign *foreign_format(const char *path, const uint8_t *peek, size_t bytes);
/* Whether the file is a JSON text, as an index of shards is. */
bool foreign_is_json(const struct foreign *foreign);
/* Returns the format by the end of the name alone. */
const struct foreign *foreign_name(const char *path);

#endif
