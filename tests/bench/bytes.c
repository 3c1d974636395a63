/* Compares every tensor of a version, as a worker reads it, with the bytes in the checkpoint that it was loaded from.
 *
 *   bytes --socket SOCKET REF SOURCE
 */
#include "bench.h"

#include "lib/files.h"
#include "lib/operate.h"
#include "lib/report.h"

#include <fcntl.h>

#define CHUNK MIB(64)

static void must_read(int fd, void *data, uint64_t bytes, uint64_t offset)
{
	for (uint64_t done = 0; done < bytes;) {
		ssize_t r = pread(fd, (char *)data + done, bytes - done, (off_t)(offset + done));

		if (r <= 0)
			DIE("reading the checkpoint: %s", r ? strerror(errno) : "it ends too early");
		done += (uint64_t)r;
	}
}

static void compare_tensor(const struct gpuwm_mapping *mapping, const char *name, int fd, uint64_t offset,
			   uint64_t bytes)
{
	static char wanted[CHUNK], found[CHUNK];
	struct gpuwm_tensor tensor;

	OK(gpuwm_tensor_find(mapping, name, &tensor));
	if (tensor.bytes != bytes)
		DIE("%s has %llu bytes, in the file %llu", name, (unsigned long long)tensor.bytes,
		    (unsigned long long)bytes);
	for (uint64_t at = 0; at < bytes; at += CHUNK) {
		uint64_t size = bytes - at < CHUNK ? bytes - at : CHUNK;

		OK(gpuwm_tensor_read(mapping, &tensor, at, found, size));
		must_read(fd, wanted, size, offset + at);
		if (memcmp(wanted, found, size) != 0)
			DIE("%s differs from its file within %llu bytes from %llu on", name,
			    (unsigned long long)size, (unsigned long long)at);
	}
}

/* How many tensors the file has. */
static uint64_t compare_file(const struct gpuwm_mapping *mapping, const char *path)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	uint64_t header_bytes, count = 0;
	json_t *header, *entry;
	const char *name;
	char *text;

	if (fd < 0)
		DIE("%s: %s", path, strerror(errno));
	must_read(fd, &header_bytes, sizeof header_bytes, 0);
	text = malloc(header_bytes);
	if (!text)
		DIE("a header of %llu bytes", (unsigned long long)header_bytes);
	must_read(fd, text, header_bytes, sizeof header_bytes);
	header = json_loadb(text, header_bytes, 0, NULL);
	free(text);
	json_object_foreach(header, name, entry) {
		json_t *offsets = json_object_get(entry, "data_offsets");
		uint64_t begin = (uint64_t)json_integer_value(json_array_get(offsets, 0));
		uint64_t end = (uint64_t)json_integer_value(json_array_get(offsets, 1));

		if (!offsets)
			continue;
		compare_tensor(mapping, name, fd, sizeof header_bytes + header_bytes + begin, end - begin);
		count++;
	}
	json_decref(header);
	close(fd);
	return count;
}

int main(int argc, char **argv)
{
	static struct files files;
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;
	uint64_t count = 0;

	if (argc != 5 || strcmp(argv[1], "--socket") != 0)
		DIE("usage: bytes --socket SOCKET REF SOURCE");
	client = worker_connect(argv[2]);
	files_of(argv[4], &files);
	OK(gpuwm_attach(client, argv[3], NULL, &mapping));
	for (size_t i = 0; i < files.count; i++)
		count += compare_file(mapping, files.file[i].path);
	if (count != gpuwm_tensor_count(mapping))
		DIE("the version has %llu tensors, the files %llu",
		    (unsigned long long)gpuwm_tensor_count(mapping), (unsigned long long)count);
	result((double)count, "", "tensors of %s, %.2f GiB, each byte equal to the file's", argv[3],
	       (double)files.bytes / (double)GIB(1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	return 0;
}
