#include "harness.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK 65536u
#define EXTRA_TENSORS 3u
#define COUNT_MAX 4096u

static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15u;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
	return x ^ (x >> 31);
}

void content_fill(uint64_t seed, const char *name, uint64_t offset, void *data, uint64_t bytes)
{
	uint64_t key = mix(seed);
	uint8_t *out = data;

	for (const char *c = name; *c; c++)
		key = mix(key ^ (uint8_t)*c);
	for (uint64_t i = 0; i < bytes;) {
		uint64_t at = offset + i, word = mix(key + at / 8);
		uint64_t within = at % 8, part = 8 - within < bytes - i ? 8 - within : bytes - i;

		memcpy(out + i, (uint8_t *)&word + within, part);
		i += part;
	}
}

bool tensor_holds(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor, uint64_t seed)
{
	static _Thread_local uint8_t want[CHUNK], have[CHUNK];

	for (uint64_t at = 0; at < tensor->bytes; at += CHUNK) {
		uint64_t bytes = tensor->bytes - at < CHUNK ? tensor->bytes - at : CHUNK;

		content_fill(seed, tensor->name, at, want, bytes);
		if (gpuwm_tensor_read(mapping, tensor, at, have, bytes) < 0 || memcmp(want, have, bytes))
			return false;
	}
	return true;
}

bool mapping_holds(const struct gpuwm_mapping *mapping, uint64_t seed)
{
	uint64_t count = gpuwm_tensor_count(mapping);

	for (uint64_t i = 0; i < count; i++) {
		struct gpuwm_tensor tensor;

		if (gpuwm_tensor_at(mapping, i, &tensor) < 0 || !tensor_holds(mapping, &tensor, seed))
			return false;
	}
	return count > 0;
}

unsigned checkpoint_tensors(const struct checkpoint *c)
{
	return c->count + EXTRA_TENSORS;
}

void checkpoint_specs(const struct checkpoint *c, struct gpuwm_tensor_spec *ret_specs)
{
	static char names[COUNT_MAX][32];
	static uint64_t square[2], matrix[2] = {16, 24}, empty[2] = {0, 7};

	cr_assert(c->count <= COUNT_MAX && c->bytes % 256 == 0);
	square[0] = 64;
	square[1] = c->bytes / 256;
	for (unsigned i = 0; i < c->count; i++) {
		snprintf(names[i], sizeof names[i], "layer.%03u.weight", i);
		ret_specs[i] = (struct gpuwm_tensor_spec){
			.name = names[i], .dtype = GPUWM_F32, .ndim = 2, .shape = square};
	}
	ret_specs += c->count;
	ret_specs[0] =
		(struct gpuwm_tensor_spec){.name = "matrix", .dtype = GPUWM_BF16, .ndim = 2, .shape = matrix};
	ret_specs[1] = (struct gpuwm_tensor_spec){.name = "scalar", .dtype = GPUWM_F32, .ndim = 0};
	ret_specs[2] =
		(struct gpuwm_tensor_spec){.name = "empty", .dtype = GPUWM_I64, .ndim = 2, .shape = empty};
}

static uint64_t spec_bytes(const struct gpuwm_tensor_spec *spec)
{
	uint64_t bytes = gpuwm_dtype_bits(spec->dtype) / 8;

	for (unsigned i = 0; i < spec->ndim; i++)
		bytes *= spec->shape[i];
	return bytes;
}

uint64_t checkpoint_bytes(const struct checkpoint *c)
{
	return c->count * c->bytes + 16 * 24 * 2 + 4;
}

static char *path_make(struct gpuwmd *d, const char *name)
{
	static char path[512];

	snprintf(path, sizeof path, "%s/%s", d->root, name);
	for (char *slash = path + strlen(d->root) + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		cr_assert(mkdir(path, 0755) == 0 || errno == EEXIST);
		*slash = '/';
	}
	return path;
}

static FILE *file_open(const char *path)
{
	FILE *file = fopen(path, "we");

	cr_assert(file, "%s: %s", path, strerror(errno));
	return file;
}

const char *file_write(struct gpuwmd *d, const char *name, const void *data, size_t bytes)
{
	char *path = path_make(d, name);
	FILE *file = file_open(path);

	cr_assert(fwrite(data, 1, bytes, file) == bytes && fclose(file) == 0, "%s: %s", path, strerror(errno));
	return path;
}

static void header_write(FILE *file, const char *text)
{
	uint64_t length = strlen(text);

	fwrite(&length, 1, sizeof length, file);
	fwrite(text, 1, length, file);
}

const char *safetensors_write(struct gpuwmd *d, const char *name, const char *header, size_t bytes)
{
	char *path = path_make(d, name);
	FILE *file = file_open(path);

	header_write(file, header);
	while (bytes--)
		fputc(0, file);
	cr_assert(fclose(file) == 0, "%s: %s", path, strerror(errno));
	return path;
}

static json_t *spec_json(const struct gpuwm_tensor_spec *spec, uint64_t offset)
{
	json_t *shape = json_array();

	for (unsigned i = 0; i < spec->ndim; i++)
		json_array_append_new(shape, json_integer((json_int_t)spec->shape[i]));
	return json_pack("{s:s, s:o, s:[I, I]}", "dtype", gpuwm_dtype_name(spec->dtype), "shape", shape,
			 "data_offsets", (json_int_t)offset, (json_int_t)(offset + spec_bytes(spec)));
}

const char *checkpoint_write(struct gpuwmd *d, const char *name, const struct checkpoint *c)
{
	struct gpuwm_tensor_spec *specs = calloc(checkpoint_tensors(c), sizeof *specs);
	json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "test");
	static uint8_t chunk[CHUNK];
	char file_name[256], *path, *text;
	uint64_t offset = 0;
	FILE *file;

	snprintf(file_name, sizeof file_name, "%s.safetensors", name);
	checkpoint_specs(c, specs);
	for (unsigned i = 0; i < checkpoint_tensors(c); i++) {
		json_object_set_new(header, specs[i].name, spec_json(&specs[i], offset));
		offset += spec_bytes(&specs[i]);
	}
	text = json_dumps(header, JSON_COMPACT);
	path = path_make(d, file_name);
	file = file_open(path);
	header_write(file, text);
	for (unsigned i = 0; i < checkpoint_tensors(c); i++) {
		uint64_t bytes = spec_bytes(&specs[i]);

		for (uint64_t at = 0; at < bytes; at += CHUNK) {
			uint64_t part = bytes - at < CHUNK ? bytes - at : CHUNK;

			content_fill(c->seed, specs[i].name, at, chunk, part);
			fwrite(chunk, 1, part, file);
		}
	}
	cr_assert(fclose(file) == 0, "%s: %s", path, strerror(errno));
	free(text);
	free(specs);
	json_decref(header);
	return path;
}

const char *checkpoint_write_flipped(struct gpuwmd *d, const char *name, const struct checkpoint *c,
				     uint64_t offset)
{
	const char *path = checkpoint_write(d, name, c);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	uint64_t header;
	uint8_t byte;
	off_t at;

	cr_assert_eq(pread(fd, &header, sizeof header, 0), (ssize_t)sizeof header);
	at = (off_t)(sizeof header + header + offset);
	cr_assert_eq(pread(fd, &byte, 1, at), 1);
	byte ^= 1;
	cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	close(fd);
	return path;
}

int publish_begin_with(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		       const struct checkpoint *c, struct gpuwm_publish **ret_publish)
{
	struct gpuwm_tensor_spec *specs = calloc(checkpoint_tensors(c), sizeof *specs);
	int r;

	checkpoint_specs(c, specs);
	r = gpuwm_publish_begin(client, options, specs, checkpoint_tensors(c), ret_publish);
	free(specs);
	return r;
}

int publish_begin(struct gpuwm_client *client, const char *device, const char *name, const struct checkpoint *c,
		  struct gpuwm_publish **ret_publish)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = name;
	options.device = device;
	return publish_begin_with(client, &options, c, ret_publish);
}

int publish_fill(struct gpuwm_publish *publish, const struct checkpoint *c)
{
	struct gpuwm_tensor_spec *specs = calloc(checkpoint_tensors(c), sizeof *specs);
	static uint8_t chunk[CHUNK];
	int r = 0;

	checkpoint_specs(c, specs);
	for (unsigned i = 0; i < checkpoint_tensors(c) && r >= 0; i++) {
		uint64_t bytes = spec_bytes(&specs[i]);

		for (uint64_t at = 0; at < bytes && r >= 0; at += CHUNK) {
			uint64_t part = bytes - at < CHUNK ? bytes - at : CHUNK;

			content_fill(c->seed, specs[i].name, at, chunk, part);
			r = gpuwm_publish_write(publish, i, at, chunk, part);
		}
	}
	free(specs);
	return r;
}

int publish_version(struct gpuwm_client *client, const char *device, const char *name,
		    const struct checkpoint *c)
{
	struct gpuwm_publish *publish;
	int r = publish_begin(client, device, name, c, &publish);

	if (r < 0)
		return r;
	r = publish_fill(publish, c);
	if (r < 0) {
		gpuwm_publish_abort(publish, "the test could not fill it");
		return r;
	}
	return gpuwm_publish_commit(publish, NULL);
}
