/* The metadata of a checkpoint's shards: what the version has of them, and what the job says. */
#include "harness.h"

#include <stdio.h>

SYSTEM_SUITE(load_metadata);

static const char *path_in(struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	return path;
}

static void write_text(struct gpuwmd *d, const char *name, const char *text)
{
	file_write(d, name, text, strlen(text));
}

static struct gpuwm_mapping *attach(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.wait_ms = LOAD_MS;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	return mapping;
}

static void shard_write(struct gpuwmd *d, const char *name, const char *metadata, const char *tensor)
{
	char data[1024];
	const int length = snprintf(data + 8, sizeof data - 8,
				    "{%s\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
				    metadata, tensor);
	const uint64_t bytes = (uint64_t)length;

	memcpy(data, &bytes, 8);
	memcpy(data + 8 + length, "data", 4);
	file_write(d, name, data, 8 + bytes + 4);
}

static void shards_write(struct gpuwmd *d, const char *of_a, const char *of_b, const char *of_c)
{
	shard_write(d, "m/a.safetensors", of_a, "a");
	shard_write(d, "m/b.safetensors", of_b, "b");
	shard_write(d, "m/c.safetensors", of_c, "c");
	write_text(
		d, "m/model.safetensors.index.json",
		"{\"weight_map\":{\"a\":\"a.safetensors\",\"b\":\"b.safetensors\",\"c\":\"c.safetensors\"}}");
	load_version(d, path_in(d, "m"), "m@v1");
}

static void expect_text(const char *key, const char *value)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = attach(client, "m@v1");
	const char *found = gpuwm_metadata(mapping, key);

	cr_assert(found && strcmp(found, value) == 0, "%s: %s", key, found ? found : "none");
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
}

GPUWMD_TEST(load_metadata, are_those_of_all_shards)
{
	shards_write(d, "\"__metadata__\":{\"format\":\"pt\",\"first\":\"1\"},",
		     "\"__metadata__\":{\"format\":\"pt\",\"second\":\"2\"},",
		     "\"__metadata__\":{\"third\":\"3\"},");
	expect_text("format", "pt");
	expect_text("first", "1");
	expect_text("second", "2");
	expect_text("third", "3");
	CTL_IS(0, "jobs", "-o", "json");
	cr_assert(!strstr(output, "metadata differ"), "%s", output);
	DROP(d, "m@v1");
}

GPUWMD_TEST(load_metadata, that_differ_are_named_by_key)
{
	shards_write(d, "\"__metadata__\":{\"quant\":\"first\",\"same\":\"x\"},",
		     "\"__metadata__\":{\"quant\":\"second\",\"same\":\"x\",\"late\":\"b\"},",
		     "\"__metadata__\":{\"quant\":\"first\",\"late\":\"c\"},");
	expect_text("quant", "first");
	expect_text("late", "b");
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("the files' metadata differ, and the version has what the first file with the key says: "
	     "late (b.safetensors, not c.safetensors); quant (a.safetensors, not b.safetensors)");
	DROP(d, "m@v1");
}

/* safetensors/safetensors#823: `__metadata__` is null, or empty, in most shards of MiniMax-M3. */
GPUWMD_TEST(load_metadata, may_be_null_or_missing_in_the_first_shards)
{
	shards_write(d, "\"__metadata__\":null,", "\"__metadata__\":{},",
		     "\"__metadata__\":{\"format\":\"pt\"},");
	expect_text("format", "pt");
	DROP(d, "m@v1");
}

/* pytorch/pytorch#154519: each shard tells in the same key which part of the tensors it has. The list of keys is cut. */
GPUWMD_TEST(load_metadata, that_differ_in_many_keys_are_counted)
{
	char first[600] = "\"__metadata__\":{", second[600] = "\"__metadata__\":{";

	for (unsigned i = 0; i < 30; i++) {
		snprintf(first + strlen(first), 20, "%s\"shard%02u\":\"1\"", i ? "," : "", i);
		snprintf(second + strlen(second), 20, "%s\"shard%02u\":\"2\"", i ? "," : "", i);
	}
	strcat(first, "},");
	strcat(second, "},");
	shards_write(d, first, second, "");
	expect_text("shard29", "1");
	CTL_IS(0, "jobs", "-o", "json");
	SAYS("shard00 (a.safetensors, not b.safetensors)");
	SAYS(" more\"");
	DROP(d, "m@v1");
}
