/* Jobs that make the memory of a region, as gpuwmd gives them: on host memory, and on tests/fakecuda where GPUWM_TEST_BACKEND says
 * so. */
#include "tests/support/loader/daemon.h"

#include "../../memory/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define BYTES (MIB(3) + 1)
#define ROUNDED MIB(4) /* on a GPU */

static struct memory_device device;
static struct error error;

static bool on_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0;
}

static const char *device_name(void)
{
	return on_fakecuda() ? "GPU-fa4e0000-0000-4000-8000-000000000000" : "host";
}

static void begin_with(const char *failure)
{
	char run[32];

	snprintf(run, sizeof(run), "region%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	setenv("FAKECUDA_FAIL", failure, 1);
	start();
	answer_empty();
}

static void begin(void)
{
	begin_with("");
}

TestSuite(region, .init = begin, .fini = finish, .timeout = 120);

static void send_region(const char *on, uint64_t bytes)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "region");
	message_put_text(&w, "region", ID);
	message_put_text(&w, "device", on);
	message_put_u64(&w, "bytes", bytes);
	say(gpuwmd, &w, NULL, 0);
}

/* Waits for the memory. Returns its bytes. */
static uint64_t expect_memory(void)
{
	struct fields f;
	char text[64];

	expect("loader_region");
	fields_of(&f, message.body);
	fields_text(&f, "region", text, sizeof(text));
	cr_expect_str_eq(text, ID);
	cr_expect_eq(fields_u64(&f, "memory"), 0);
	cr_expect_eq(packet.fd_count, 1);
	return fields_u64(&f, "bytes");
}

static void expect_zeros(int fd, uint64_t bytes)
{
	struct memory_segment segment;
	uint8_t *have = malloc(bytes);

	cr_assert_eq(memory_device_open(device_name(), &device, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->map_shared(&device, fd, bytes, MEMORY_WRITE, &segment, &error), 0, "%s",
		     error.message);
	cr_assert_eq(device.ops->enter(&device, &error), 0);
	cr_assert_eq(device.ops->read(&device, have, segment.address, bytes, &error), 0);
	device.ops->leave(&device);
	for (uint64_t i = 0; i < bytes; i++)
		cr_assert_eq(have[i], 0, "byte %llu is %d", (unsigned long long)i, have[i]);
	device.ops->unmap_shared(&device, &segment);
	free(have);
}

Test(region, is_zeros_of_whole_pages)
{
	uint64_t page = on_fakecuda() ? MIB(2) : (uint64_t)sysconf(_SC_PAGESIZE), bytes;
	int fd;

	send_region(device_name(), BYTES);
	bytes = expect_memory();
	cr_expect_eq(bytes, (BYTES + page - 1) / page * page);
	fd = keep_fd(packet.fds[0]);
	answer_empty();
	expect("loader_done");
	answer_empty();
	expect_zeros(fd, bytes);
	expect_end(0);
	close(fd);
}

Test(region, is_told_that_it_is_not_wanted_any_more)
{
	struct error refusal = {.code = -ENOENT, .message = "the region was removed"};
	struct message_writer w;

	send_region(device_name(), BYTES);
	expect_memory();
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, &message.id, &refusal);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(gpuwmd, w.buffer.data, w.buffer.size, NULL, 0), 0);
	message_writer_clear(&w);
	expect_done("ENOENT", "the region was removed");
}

Test(region, is_cancelled)
{
	send_region(device_name(), BYTES);
	expect_memory();
	notify("cancel");
	answer_empty();
	expect_done("", "");
}

Test(region, has_no_room)
{
	/* Host memory is not there before it is touched, so that only gpuwmd's budget limits it. */
	send_region(device_name(), on_fakecuda() ? UINT64_C(1) << 60 : UINT64_MAX);
	expect_done(on_fakecuda() ? "ENOSPC" : "EINVAL", on_fakecuda() ? "no room for " : "can't have");
}

Test(region, refuses_sizes_that_are_none)
{
	send_region(device_name(), 0);
	expect_done("EINVAL", "can't have 0 bytes");
}

Test(region, refuses_a_device_that_is_not_there)
{
	send_region("GPU-00000000-0000-0000-0000-000000000000", BYTES);
	expect_done(on_fakecuda() ? "ENODEV" : "ENOTSUP", "");
}

static void no_context(void)
{
	begin_with("cuDevicePrimaryCtxRetain:0:2");
}

/* Memory that could not be cleared is not handed over. */
Test(region_short, needs_a_context_to_clear_it, .init = no_context, .fini = finish, .timeout = 120)
{
	send_region(device_name(), BYTES);
	if (!on_fakecuda()) {
		expect_memory();
		answer_empty();
	}
	expect_done(on_fakecuda() ? "ENOSPC" : "", on_fakecuda() ? "no room for a CUDA context" : "");
}

static void no_clearing(void)
{
	begin_with("cuMemsetD8_v2:0:1");
}

Test(region_short, is_not_handed_over_unless_it_is_cleared, .init = no_clearing, .fini = finish, .timeout = 120)
{
	send_region(device_name(), BYTES);
	if (!on_fakecuda()) {
		expect_memory();
		answer_empty();
	}
	expect_done(on_fakecuda() ? "EIO" : "", on_fakecuda() ? "filling memory with zeros" : "");
}

static void no_export(void)
{
	begin_with("cuMemExportToShareableHandle:0:999");
}

Test(region_short, is_not_handed_over_without_its_descriptor, .init = no_export, .fini = finish, .timeout = 120)
{
	send_region(device_name(), BYTES);
	if (!on_fakecuda()) {
		expect_memory();
		answer_empty();
	}
	expect_done(on_fakecuda() ? "EIO" : "", on_fakecuda() ? "exporting" : "");
}
