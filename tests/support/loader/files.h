/* Files for the loader's tests: a folder of its own for each test, and
 * safetensors files made of a header and bytes. */
#ifndef GPUWM_TESTS_LOADER_FILES_H
#define GPUWM_TESTS_LOADER_FILES_H

#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

extern char folder[PATH_MAX / 4];

/* Makes `folder`, and removes it with all that is in it. A test that skips need not remove it: that is done as its process ends. */
void folder_make(void);
void folder_remove(void);

/* Returns a path in the folder; the last four stay valid. */
const char *in_folder(const char *format, ...);

void write_bytes(const char *path, const void *data, size_t bytes);
/* Writes a safetensors file: the header's length, the header, and bytes 0, 1, 2, … */
void write_safetensors(const char *path, const char *header, size_t data_bytes);

#endif
