#include "copied.h"

#include <errno.h>
#include <stdlib.h>

struct copy_report report;
size_t buffers = 6;
struct memory_device host;
char *memory[2][TENSORS];
struct digest digests[TENSORS];

void copied_setup(void)
{
	char *roots[] = {folder};

	if (!getenv("TMPDIR"))
		setenv("TMPDIR", "/var/tmp", 1); /* /tmp may be a tmpfs */
	folder_make();
	write_safetensors(in_folder("m.safetensors"),
			  "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
			  "\"b\":{\"dtype\":\"U8\",\"shape\":[100000],\"data_offsets\":[8,100008]},"
			  "\"c\":{\"dtype\":\"U8\",\"shape\":[13],\"data_offsets\":[100008,100021]}}",
			  BIG + 21);
	cr_assert_eq(source_open(in_folder("m.safetensors"), &(struct load_choice){0},
				 &(struct roots){.paths = roots, .count = 1}, &source, &error),
		     0, "%s", error.message);
	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < TENSORS; k++)
			memory[i][k] = calloc(1, source.tensors[k].bytes);
}

void copied_teardown(void)
{
	for (int i = 0; i < 2; i++)
		for (int k = 0; k < TENSORS; k++)
			free(memory[i][k]);
	source_close(&source);
	folder_remove();
}

static int give_lanes(struct lanes **ret, void *lanes, struct error *unused)
{
	(void)unused;
	*ret = lanes;
	return 0;
}

int copy_to(const struct copy_target *targets, size_t count, struct copy options)
{
	struct lanes *lanes;
	bool through_ring = targets[0].device->ops != &memory_host;
	struct ring ring;
	int r;

	options.source = &source;
	options.targets = targets;
	options.target_count = count;
	memset(&error, 0, sizeof(error));
	if (!through_ring)
		return copy_run(&options, digests, &report, &error);
	cr_assert_eq(ring_make(copy_buffer_bytes(options.chunk), buffers, &ring, &error), 0);
	cr_assert_eq(lanes_open(targets, count, ring.count, &lanes, &error), 0);
	options.ring = &ring;
	options.open = give_lanes;
	options.open_data = lanes;
	r = copy_run(&options, digests, &report, &error);
	lanes_close(lanes);
	ring_free(&ring);
	return r;
}

void expect_copied(int place)
{
	for (int k = 0; k < TENSORS; k++) {
		const struct source_tensor *tensor = &source.tensors[k];
		struct digest digest = digest_of(memory[place][k], tensor->bytes);

		for (uint64_t i = 0; i < tensor->bytes; i++)
			cr_assert_eq((uint8_t)memory[place][k][i],
				     (uint8_t)(tensor->offset - source.tensors[0].offset + i), "%s, byte %zu",
				     tensor->name, (size_t)i);
		cr_assert(digest_equal(&digest, &digests[k]), "%s", tensor->name);
	}
}

struct memory_ops other_ops;
int writes_left;

static int other_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		       struct error *write_error)
{
	(void)device;
	if (__atomic_fetch_sub(&writes_left, 1, __ATOMIC_RELAXED) <= 0)
		return error_set(write_error, -EIO, NULL, "the device is gone");
	memcpy(to, from, bytes);
	return 0;
}

struct memory_device other(int writes)
{
	other_ops = memory_host;
	other_ops.write = other_write;
	writes_left = writes;
	return (struct memory_device){.ops = &other_ops, .id = "GPU-x"};
}
