/* A load that shares: what it asks for, and what becomes of its own memory. On the host, and on tests/fakecuda. */
#include "tests/support/loader/daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

static struct part resident; /* what gpuwmd holds: the model of an earlier load */
static struct error error;

static const char *device(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0 ? "GPU-fa4e0000-0000-4000-8000-000000000000"
							   : DEVICE_HOST;
}

static void begin(void)
{
	start();
	answer_empty();
	write_model();
}

static void send_load(void)
{
	send_load_to(folder, folder, (const char *const[]){device(), NULL});
	expect("publish_begin");
	answer_begin();
}

/* Loads the model, and keeps it as the resident version. */
static void make_resident(void)
{
	struct check_part part;
	struct part list;

	begin();
	send_load();
	expect("loader_checked");
	read_part(&part, &list);
	resident = list;
	resident.index.fd = keep_fd(list.index.fd);
	resident.segments[0].fd = keep_fd(list.segments[0].fd);
	answer_empty();
	expect_done("", "");
	finish();
}

static void setup(void)
{
	char run[32];

	snprintf(run, sizeof(run), "share%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_DIRTY", "1", 1);
	make_resident();
	share_with = "m@v0";
	begin();
}

static void teardown(void)
{
	finish();
	part_close(&resident);
	share_with = NULL;
}

TestSuite(share, .init = setup, .fini = teardown, .timeout = 120);

static void answer_resident(const struct part *part)
{
	struct message_writer w;
	int fds[PACKET_FDS_MAX];
	size_t count;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	count = part_write(&w, part, fds);
	say(gpuwmd, &w, fds, count);
}

static void refuse_resident(int code, const char *text)
{
	struct message_writer w;

	error_set(&error, code, NULL, "%s", text);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response_error(&w, &message.id, &error);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(packet_send(gpuwmd, w.buffer.data, w.buffer.size, NULL, 0), 0);
	message_writer_clear(&w);
}

/* How many segments of the loader_checked are resident ones, and that the part is whole. */
static uint32_t shared_count(void)
{
	const msgpack_object *shared;
	struct check_result result;
	struct check_part part;
	struct fields f, pair;
	uint32_t count = 0;
	struct part list;

	read_part(&part, &list);
	cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
	fields_of(&f, message.body);
	if (!fields_have(&f, "shared"))
		return 0;
	shared = fields_array(&f, "shared", &count);
	for (uint32_t i = 0; i < count; i++) {
		fields_of(&pair, &shared[i]);
		cr_expect_eq(fields_u64(&pair, "segment"), i);
		cr_expect_eq(fields_u64(&pair, "resident"), i);
	}
	return count;
}

static void expect_shared(uint32_t expected)
{
	expect("loader_checked");
	cr_expect_eq(shared_count(), expected);
	answer_empty();
	expect_done("", "");
}

Test(share, takes_the_resident_segment_where_it_is_equal)
{
	struct fields f;
	char text[DEVICE_BYTES_MAX + 1];

	send_load();
	expect("loader_resident");
	fields_of(&f, message.body);
	fields_text(&f, "device", text, sizeof(text));
	cr_expect_str_eq(text, device());
	cr_expect_eq(fields_u64(&f, "rank"), 0);
	answer_resident(&resident);
	expect_shared(1);
}

Test(share, keeps_its_own_where_a_tensor_differs)
{
	FILE *file = fopen(in_folder("model.safetensors"), "r+e");

	cr_assert(file && fseek(file, -1, SEEK_END) == 0 && fputc(0x5a, file) == 0x5a && fclose(file) == 0);
	send_load();
	expect("loader_resident");
	answer_resident(&resident);
	expect_shared(0);
}

Test(share, keeps_its_own_where_a_tensor_is_another)
{
	write_safetensors(in_folder("model.safetensors"),
			  "{\"c\":{\"dtype\":\"U8\",\"shape\":[5],\"data_offsets\":[0,5]}}", 5);
	send_load();
	expect("loader_resident");
	answer_resident(&resident);
	expect_shared(0);
}

Test(share, goes_on_where_there_is_no_such_part)
{
	send_load();
	expect("loader_resident");
	refuse_resident(-ENODEV, "rank 0 of m@v0 is not on it");
	expect_shared(0);
}

Test(share, fails_where_the_part_is_refused)
{
	send_load();
	expect("loader_resident");
	refuse_resident(-EINVAL, "job 1 shares no version");
	expect_done("EINVAL", "job 1 shares no version");
}

Test(share, fails_without_the_descriptors)
{
	struct message_writer w;
	int fds[PACKET_FDS_MAX];

	send_load();
	expect("loader_resident");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	part_write(&w, &resident, fds);
	say(gpuwmd, &w, fds, 1);
	expect_done("EPROTO", "loader_resident: segment 0 came without its descriptor");
}

Test(share, fails_with_an_index_of_other_segments)
{
	struct part other = resident;

	other.segment_count = 0;
	send_load();
	expect("loader_resident");
	answer_resident(&other);
	expect_done("EIO", "the index of m@v0 speaks of other segments than gpuwmd");
}

Test(share, fails_with_an_index_that_is_none)
{
	struct part other = resident;

	other.index.bytes -= 8;
	send_load();
	expect("loader_resident");
	answer_resident(&other);
	expect_done("EIO", "");
}

/* It is what gpuwmd says, but not what its descriptor is. */
Test(share, fails_with_a_segment_that_can_not_be_mapped)
{
	struct part other = resident;

	other.segments[0].fd = resident.index.fd;
	if (strcmp(device(), DEVICE_HOST) == 0)
		other.segments[0].fd = gpuwmd;
	send_load();
	expect("loader_resident");
	answer_resident(&other);
	expect_done(strcmp(device(), DEVICE_HOST) == 0 ? "ENODEV" : "EIO", "");
}

Test(share, ends_when_it_is_cancelled)
{
	send_load();
	expect("loader_resident");
	notify("cancel");
	answer_resident(&resident);
	expect_done("ECANCELED", "cancelled while comparing");
}
