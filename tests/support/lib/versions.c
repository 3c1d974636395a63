#include "versions.h"

struct made made_default(const char *tag, uint8_t fill)
{
	return (struct made){
		.tag = tag,
		.fill = fill,
		.names = {"a", "b", "c"},
		.dtype = DTYPE_F32,
		.ndim = 2,
		.shape = {10, 20},
		.strides = {20, 1},
		.offset = 256,
		.units = {2, 1},
		.tensors = 3,
		.segments = 2,
	};
}

static int made_segment(const struct memory_device *device, uint64_t bytes, uint8_t fill)
{
	const struct memory_ops *ops = device->ops;
	struct memory_segment segment;
	struct error error;
	char *data = malloc(bytes);
	int fd;

	memset(data, fill, bytes);
	cr_assert(eq(int, ops->create(device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->map(device, &segment, MEMORY_WRITE, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->enter(device, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->write(device, segment.address, data, bytes, &error), 0), "%s", error.message);
	ops->leave(device);
	ops->unmap(device, &segment);
	cr_assert(eq(int, ops->export(device, &segment, &error), 0), "%s", error.message);
	fd = segment.fd;
	segment.fd = -1;
	ops->release(device, &segment);
	free(data);
	return fd;
}

static void made_tensors(struct index_builder *builder, const struct made *made)
{
	const uint64_t ends[] = {100, 50};
	const struct index_tensor_spec specs[] = {
		{.name = made->names[0], .dtype = DTYPE_U8, .ndim = 1, .shape = &ends[0]},
		{.name = made->names[1],
		 .dtype = made->dtype,
		 .ndim = made->ndim,
		 .shape = made->shape,
		 .strides = made->strides,
		 .offset = made->offset},
		{.name = made->names[2],
		 .dtype = DTYPE_U8,
		 .ndim = 1,
		 .shape = &ends[1],
		 .segment = (uint32_t)made->segments - 1,
		 .offset = made->segments == 1 ? 2048 : 0},
	};
	char bytes[800];
	uint64_t made_bytes = 0;

	cr_assert(eq(int, dtype_bytes(made->dtype, made->ndim, made->shape, &made_bytes), 0));
	memset(bytes, made->lies ? made->fill + 1 : made->fill, sizeof(bytes));
	for (size_t i = 0; i < made->tensors; i++) {
		const uint64_t sizes[] = {100, made_bytes, 50};
		struct digest digest = digest_of(bytes, sizes[i]);
		struct error error;

		cr_assert(eq(int, index_builder_tensor(builder, &specs[i], &error), 0), "%s", error.message);
		cr_assert(eq(int, index_builder_digest(builder, i, &digest), 0));
	}
}

struct fake_version *made_add(struct fake *of, const struct memory_device *device, const struct made *made)
{
	struct fake_version *version = &of->versions[of->version_count];
	struct index_builder *builder = index_builder_new(0, 1);
	struct error error;
	uint64_t unit;

	cr_assert(lt(sz, of->version_count, FAKE_VERSIONS));
	cr_assert(eq(int, device->ops->granularity(device, &unit, &error), 0), "%s", error.message);
	*version = (struct fake_version){.fd_count = made->segments + 1};
	snprintf(version->id, sizeof(version->id), "%032zx", 0xf0 + of->version_count);
	snprintf(version->tag, sizeof(version->tag), "%s", made->tag);
	for (size_t i = 0; i < made->segments; i++) {
		version->bytes[i + 1] = made->units[i] * unit;
		version->fds[i + 1] = made_segment(device, version->bytes[i + 1], made->fill);
		cr_assert(eq(int, index_builder_segment(builder, version->bytes[i + 1]), 0));
	}
	made_tensors(builder, made);
	cr_assert(eq(int, index_builder_metadata(builder, "tag", made->tag), 0));
	cr_assert(eq(int, index_builder_file(builder, "config.json", made->tag, strlen(made->tag)), 0));
	cr_assert(eq(int, index_builder_finish(builder, &version->fds[0], &version->bytes[0], &error), 0), "%s",
		  error.message);
	index_builder_free(builder);
	of->version_count++;
	return version;
}

int filled_with(const struct gpuwm_mapping *mapping)
{
	struct gpuwm_tensor tensor;
	uint8_t bytes[800];
	int fill = -1;

	for (uint64_t i = 0; i < gpuwm_tensor_count(mapping); i++) {
		if (gpuwm_tensor_at(mapping, i, &tensor) < 0 || tensor.bytes > sizeof(bytes) ||
		    gpuwm_tensor_read(mapping, &tensor, 0, bytes, tensor.bytes) < 0)
			return -1;
		fill = i == 0 ? bytes[0] : fill;
		for (uint64_t n = 0; n < tensor.bytes; n++) {
			if (bytes[n] != fill)
				return -1;
		}
	}
	return fill;
}
