#include "index_sample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct error error;

void sample_add(struct index_builder *b, const char *name, unsigned dtype, unsigned ndim, const uint64_t *shape,
		const int64_t *strides, uint32_t segment, uint64_t offset)
{
	struct index_tensor_spec spec = {name, dtype, ndim, shape, strides, segment, offset};

	cr_assert_eq(index_builder_tensor(b, &spec, &error), 0, "%s", error.message);
}

struct index_builder *sample_builder(void)
{
	struct index_builder *b = index_builder_new(1, 2);

	cr_assert(b);
	cr_assert_eq(index_builder_segment(b, 4096), 0);
	cr_assert_eq(index_builder_segment(b, 8192), 0);
	sample_add(b, "wte", DTYPE_BF16, 2, (uint64_t[]){8, 16}, NULL, 0, 256);
	sample_add(b, "head", DTYPE_BF16, 2, (uint64_t[]){8, 16}, (int64_t[]){1, 8}, 0, 256);
	sample_add(b, "scale", DTYPE_F32, 0, NULL, NULL, 1, 8188);
	sample_add(b, "mask", DTYPE_F4, 1, (uint64_t[]){6}, NULL, 1, 1);
	sample_add(b, "empty", DTYPE_I64, 2, (uint64_t[]){0, 5}, NULL, 1, 8192);
	for (size_t i = 0; i < 5; i++) {
		struct digest digest =
			digest_of(&i, i < 2 ? 0 : 1); /* those of "wte" and "head" are the same */

		cr_assert_eq(index_builder_digest(b, i, &digest), 0);
	}
	cr_assert_eq(index_builder_metadata(b, "format", "pt"), 0);
	cr_assert_eq(index_builder_metadata(b, "author", ""), 0);
	cr_assert_eq(index_builder_file(b, "config.json", "{}\0{", 4), 0);
	cr_assert_eq(index_builder_file(b, "a.txt", "", 0), 0);
	return b;
}

void *sample_bytes(struct index_builder *b, size_t *ret_bytes)
{
	uint64_t bytes;
	void *data;
	int fd;

	cr_assert_eq(index_builder_finish(b, &fd, &bytes, &error), 0, "%s", error.message);
	data = malloc(bytes);
	cr_assert_eq(pread(fd, data, bytes, 0), (ssize_t)bytes);
	close(fd);
	*ret_bytes = bytes;
	return data;
}
