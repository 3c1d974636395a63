/* Writes every tensor and every file of a version, as a worker sees them, below
 * a folder, and a line for each to stdout: number, "tensor" or "file", dtype,
 * shape, name; separated by tabs.
 *
 *   dump-tensors REF FOLDER
 */
#include <gpuwm/client.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	return 1;
}

static int save(const char *folder, unsigned number, const void *data, uint64_t bytes)
{
	char path[4096];
	FILE *file;

	snprintf(path, sizeof path, "%s/%u", folder, number);
	file = fopen(path, "we");
	if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0) {
		perror(path);
		return 1;
	}
	return 0;
}

static int dump_tensor(const struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor,
		       const char *folder, unsigned number)
{
	void *data = malloc(tensor->bytes + 1);
	int r;

	if (!data || gpuwm_tensor_read(mapping, tensor, 0, data, tensor->bytes) < 0) {
		free(data);
		return fail(tensor->name);
	}
	r = save(folder, number, data, tensor->bytes);
	free(data);
	printf("%u\ttensor\t%s\t", number, gpuwm_dtype_name(tensor->dtype));
	for (uint32_t i = 0; i < tensor->ndim; i++)
		printf("%s%" PRIu64, i ? "," : "", tensor->shape[i]);
	printf("\t%s\n", tensor->name);
	return r;
}

static int dump(const struct gpuwm_mapping *mapping, const char *folder)
{
	struct gpuwm_tensor tensor;
	const char *name;
	const void *data;
	unsigned number = 0;
	uint32_t bytes;
	int r = 0;

	for (uint64_t i = 0; r == 0 && gpuwm_tensor_at(mapping, i, &tensor) == 0; i++)
		r = dump_tensor(mapping, &tensor, folder, number++);
	for (uint32_t i = 0; r == 0 && gpuwm_file_at(mapping, i, &name, &data, &bytes) == 0; i++) {
		r = save(folder, number, data, bytes);
		printf("%u\tfile\t\t\t%s\n", number++, name);
	}
	return r;
}

int main(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	int r;

	if (argc != 3) {
		fprintf(stderr, "usage: dump-tensors REF FOLDER\n");
		return 2;
	}
	if (gpuwm_connect(NULL, &client) < 0)
		return fail("connect");
	if (gpuwm_attach(client, argv[1], NULL, &mapping) < 0)
		return fail(argv[1]);
	r = dump(mapping, argv[2]);
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return r;
}
