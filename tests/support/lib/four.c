#include "four.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <string.h>

static const uint64_t shape[] = {10, 20};
const struct gpuwm_tensor_spec four_specs[FOUR] = {
	{.name = "b", .dtype = GPUWM_F32, .ndim = 2, .shape = shape},
	{.name = "a", .dtype = GPUWM_U8, .ndim = 2, .shape = shape},
	{.name = "head", .dtype = GPUWM_F32, .ndim = 2, .shape = shape, .tied_to = "b"},
	{.name = "scalar", .dtype = GPUWM_I64},
};

struct gpuwm_publish *four_begin(void)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;

	options.name = "m@v1";
	options.device = "host";
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), 0), "%s",
		  gpuwm_error()->message);
	return publish;
}

struct gpuwm_version_info four_publish(void)
{
	struct gpuwm_publish *publish = four_begin();
	struct gpuwm_version_info version;
	const int64_t scalar = -5;
	uint64_t bytes;
	void *data;

	cr_assert(eq(int, gpuwm_publish_memory(publish, 0, &data, &bytes), 0));
	cr_assert(eq(u64, bytes, 800));
	for (int i = 0; i < 200; i++)
		((float *)data)[i] = (float)i;
	cr_assert(eq(int, gpuwm_publish_memory(publish, 1, &data, NULL), 0));
	memset(data, 7, 200);
	cr_assert(eq(int, gpuwm_publish_write(publish, 3, 0, &scalar, 8), 0));
	cr_assert(eq(int, gpuwm_publish_metadata(publish, "format", "pt"), 0));
	cr_assert(eq(int, gpuwm_publish_file(publish, "config.json", "{}", 2), 0));
	cr_assert(eq(int, gpuwm_publish_commit(publish, &version), 0), "%s", gpuwm_error()->message);
	return version;
}
