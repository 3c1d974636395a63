/* Loads and checks on GPUs: where tests/fakecuda stands in for the driver, else skipped. */
#include "tests/support/loader/daemon.h"

#include "../../memory/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4e0000-0000-4000-8000-000000000001"
#define GRANULARITY MIB(2)

static struct error error;
static struct check_result result;

/* Before the driver is opened: a strict one whose new memory is dirty. */
static void start_with(const char *variable, const char *value)
{
	char run[32];
	void *library = dlopen("libcuda.so.1", RTLD_LAZY);

	if (!library || !strstr(getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "", "fakecuda"))
		cr_skip_test("runs on tests/fakecuda only");
	dlclose(library);
	snprintf(run, sizeof(run), "loader%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	if (variable)
		setenv(variable, value, 1);
	start();
	write_model();
}

TestSuite(cuda, .timeout = 120);

static void load_to(const char *first, const char *second)
{
	answer_empty();
	send_load_to(folder, folder, (const char *const[]){first, second, NULL});
}

/* A part of the one tensor model on the first GPU; the descriptors are the packet's. */
static void load_part(struct check_part *part, struct part *list)
{
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	read_part(part, list);
}

static void stop(void)
{
	hang_up();
	pthread_join(thread, NULL);
	finish();
}

Test(cuda, reports_gpus_with_what_is_free)
{
	struct fields f, d;
	uint32_t count = 0;
	const msgpack_object *devices;
	char id[64];

	start_with("FAKECUDA_MEMORY", "64M");
	fields_of(&f, message.body);
	devices = fields_array(&f, "devices", &count);
	cr_assert_eq(count, 3);
	fields_of(&d, &devices[2]);
	fields_text(&d, "device", id, sizeof(id));
	cr_expect_str_eq(id, GPU1);
	cr_expect_eq(fields_u64(&d, "total"), MIB(64));
	cr_expect_eq(fields_u64(&d, "free"), MIB(64));
	cr_expect_eq(fields_u64(&d, "granularity"), GRANULARITY);
	cr_expect_eq(d.error.code, 0, "%s", d.error.message);
	answer_empty();
	stop();
}

#define MODEL_BYTES MIB(1)

static unsigned long long bytes_read(void)
{
	FILE *file = fopen("/proc/self/io", "re");
	unsigned long long bytes = 0;

	cr_assert(file && fscanf(file, "rchar: %llu", &bytes) == 1);
	fclose(file);
	return bytes;
}

/* The model is read while the driver makes the context: here it never gets ready. */
Test(cuda, reads_ahead_of_the_context)
{
	unsigned long long before;

	start_with("FAKECUDA_HANG", "cuDevicePrimaryCtxRetain:1");
	write_safetensors(in_folder("model.safetensors"),
			  "{\"a\":{\"dtype\":\"U8\",\"shape\":[1048576],\"data_offsets\":[0,1048576]}}",
			  MODEL_BYTES);
	before = bytes_read();
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	while (bytes_read() - before < MODEL_BYTES)
		usleep(1000);
	notify("cancel");
	expect("loader_done");
	answer_empty();
	pthread_join(thread, NULL);
	hang_up();
	finish();
	/* What hangs in the driver ends with the process. */
}

Test(cuda, loads_replicas_to_two_gpus)
{
	static const char *const devices[] = {GPU0, GPU1};
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_to(GPU0, GPU1);
	expect("publish_begin");
	answer_begin();
	expect("publish_begin");
	answer_begin();
	for (int i = 0; i < 2; i++) {
		expect("loader_checked");
		read_part(&part, &list);
		cr_expect_str_eq(part.device, devices[i]);
		cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
		cr_expect_eq(result.bytes, GRANULARITY);
		answer_empty();
	}
	expect_done("", "");
	finish();
}

Test(cuda, loads_to_host_and_gpu_at_once)
{
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_to(GPU1, "host");
	for (int i = 0; i < 2; i++) {
		expect("publish_begin");
		answer_begin();
	}
	for (int i = 0; i < 2; i++) {
		expect("loader_checked");
		read_part(&part, &list);
		cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
		answer_empty();
	}
	expect_done("", "");
	finish();
}

Test(cuda, tells_that_there_is_no_room)
{
	start_with("FAKECUDA_FAIL", "cuMemCreate:1:2");
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	expect("publish_abort");
	answer_empty();
	expect_done("ENOSPC", "no room for 2097152 bytes on " GPU0);
	finish();
}

Test(cuda, tells_that_a_copy_failed)
{
	start_with("FAKECUDA_FAIL", "cuMemcpyHtoDAsync_v2:2:719");
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	expect_done("EIO", "copying to GPU-");
	finish();
}

/* The first one waits for the zeros around the tensors. */
Test(cuda, tells_that_copies_did_not_arrive)
{
	start_with("FAKECUDA_FAIL", "cuStreamSynchronize:2:719");
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	expect_done("EIO", "waiting for copies to " GPU0);
	finish();
}

/* The driver copies a byte wrongly where a test writes behind its back. */
static void write_byte(const struct check_part *part, uint64_t at, uint8_t byte)
{
	struct memory_segment segment;
	struct memory_device device;

	cr_assert_eq(memory_device_open(part->device, &device, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->import(&device, part->part->segments[0].fd, part->part->segments[0].bytes,
					true, &segment, &error),
		     0, "%s", error.message);
	cr_assert_eq(device.ops->map(&device, &segment, MEMORY_WRITE, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->enter(&device, &error), 0);
	cr_assert_eq(device.ops->write(&device, (char *)segment.address + at, &byte, 1, &error), 0);
	device.ops->leave(&device);
	device.ops->release(&device, &segment);
}

static void refuse(const struct check_part *part, const char *says)
{
	cr_expect_eq(check_part(part, NULL, NULL, &result, &error), -EBADMSG);
	cr_expect(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

Test(cuda, finds_damage_by_reading_back)
{
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_part(&part, &list);
	write_byte(&part, 256, 0xEE);
	refuse(&part, "tensor \"b\"");
	stop();
}

Test(cuda, finds_dirty_padding)
{
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_part(&part, &list);
	write_byte(&part, GRANULARITY - 1, 0xEE);
	refuse(&part, "segment 0: the padding");
	stop();
}

/* The index agrees with the lie: only mapping can tell. */
Test(cuda, refuses_a_size_that_is_not_the_handles)
{
	struct part list;
	struct memory_segment large;
	struct memory_device device;
	struct check_part part;

	start_with(NULL, NULL);
	load_part(&part, &list);
	cr_assert_eq(memory_device_open(GPU0, &device, &error), 0);
	cr_assert_eq(device.ops->create(&device, 2 * GRANULARITY, &large, &error), 0);
	cr_assert_eq(device.ops->export(&device, &large, &error), 0);
	list.segments[0].fd = large.fd;
	refuse(&part, "segment 0: a segment does not hold exactly 2097152 bytes");
	device.ops->release(&device, &large);
	stop();
}

Test(cuda, refuses_descriptors_that_are_no_gpu_memory)
{
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_part(&part, &list);
	list.segments[0].fd = memfd_create("no", MFD_CLOEXEC);
	refuse(&part, "segment 0: the descriptor is not memory of a GPU");
	close(list.segments[0].fd);
	list.segments[0].fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	refuse(&part, "segment 0: the descriptor is not memory of a GPU");
	close(list.segments[0].fd);
	stop();
}

/* Between its digest and the look at where it is not zero. */
static int clean_up(uint64_t bytes, void *user_data)
{
	if (bytes > 0)
		write_byte(user_data, GRANULARITY - 1, 0);
	return 0;
}

Test(cuda, finds_padding_that_reads_differently_each_time)
{
	struct part list;
	struct check_part part;

	start_with(NULL, NULL);
	load_part(&part, &list);
	write_byte(&part, GRANULARITY - 1, 0xEE);
	cr_expect_eq(check_part(&part, clean_up, &part, &result, &error), -EBADMSG);
	cr_expect(strstr(error.message, "to 2097152 is not zero"), "%s", error.message);
	stop();
}

/* A machine whose driver takes no image of the kernel: slower, and told. */
Test(cuda, tells_why_digests_were_read_back)
{
	bool told = false;
	struct fields f;
	char note[TEXT_BYTES_MAX + 1];

	start_with("FAKECUDA_FAIL", "cuModuleLoadData:0:222");
	load_to(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	while (listen_to(gpuwmd) && strcmp(message.method, "loader_progress") == 0) {
		fields_of(&f, message.body);
		if (!fields_have(&f, "note"))
			continue;
		fields_text(&f, "note", note, sizeof(note));
		told = told || strstr(note, "the CPU computed the digests on " GPU0);
	}
	cr_expect(told);
	cr_expect_str_eq(message.method, "loader_checked");
	answer_empty();
	expect_done("", "");
	finish();
}
