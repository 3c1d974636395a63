/* Verify jobs, as gpuwmd gives them: on host memory, and on tests/fakecuda where GPUWM_TEST_BACKEND says so. */
#include "tests/support/loader/daemon.h"

#include "../../memory/memory.h"
#include "../../proto/index/index.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>

#define SEGMENT MIB(2)
#define TENSOR 100000 /* bytes of the tensor "t"; what is behind it must be zero */

static struct memory_device device;
static struct error error;

/* The part: descriptors of the index and of its one segment, and the pace. */
static int fds[2];
static uint64_t index_bytes, chunk, permille;

static bool on_fakecuda(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return backend && strcmp(backend, "fakecuda") == 0;
}

static void begin(void)
{
	char run[32];

	snprintf(run, sizeof(run), "verify%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_STRICT", "1", 1);
	start();
	cr_assert_eq(memory_device_open(on_fakecuda() ? "GPU-fa4e0000-0000-4000-8000-000000000000" : "host",
					&device, &error),
		     0, "%s", error.message);
	answer_empty();
}

TestSuite(verify, .init = begin, .fini = finish, .timeout = 120);

/* TENSOR bytes and zeros, but for one byte that was changed since; -1: none. */
static void make_segment(int64_t changed)
{
	uint8_t *bytes = calloc(1, SEGMENT);
	struct memory_segment segment;

	for (int i = 0; i < TENSOR; i++)
		bytes[i] = (uint8_t)(i * 7);
	if (changed >= 0)
		bytes[changed] ^= 4;
	cr_assert_eq(device.ops->create(&device, SEGMENT, &segment, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->map(&device, &segment, MEMORY_WRITE, &error), 0, "%s", error.message);
	cr_assert_eq(device.ops->enter(&device, &error), 0);
	cr_assert_eq(device.ops->write(&device, segment.address, bytes, SEGMENT, &error), 0);
	device.ops->leave(&device);
	device.ops->unmap(&device, &segment);
	cr_assert_eq(device.ops->export(&device, &segment, &error), 0, "%s", error.message);
	fds[1] = segment.fd;
	segment.fd = -1;
	device.ops->release(&device, &segment);
	free(bytes);
}

static void make_index(void)
{
	static uint8_t bytes[TENSOR];
	struct index_builder *b = index_builder_new(2, 3);
	uint64_t size = TENSOR;
	struct index_tensor_spec spec = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .shape = &size};
	struct digest digest;

	for (int i = 0; i < TENSOR; i++)
		bytes[i] = (uint8_t)(i * 7);
	digest = digest_of(bytes, TENSOR);
	index_builder_segment(b, SEGMENT);
	cr_assert_eq(index_builder_tensor(b, &spec, &error), 0);
	index_builder_digest(b, 0, &digest);
	cr_assert_eq(index_builder_finish(b, &fds[0], &index_bytes, &error), 0, "%s", error.message);
	index_builder_free(b);
}

static void send_verify(size_t fd_count)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "verify");
	message_put_text(&w, "model", "m");
	message_put_text(&w, "tag", "v1");
	message_put_u64(&w, "rank", 2);
	message_put_u64(&w, "world", 3);
	message_put_text(&w, "device", device.id);
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", index_bytes);
	message_begin_array(&w, "segments");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "fd", 1);
	message_put_u64(&w, "bytes", SEGMENT);
	message_end(&w);
	message_end(&w);
	if (chunk)
		message_put_u64(&w, "chunk", chunk);
	if (permille)
		message_put_u64(&w, "permille", permille);
	say(gpuwmd, &w, fds, fd_count);
	close(fds[0]);
	close(fds[1]);
}

static void verify(int64_t changed)
{
	make_segment(changed);
	make_index();
	send_verify(2);
}

/* Progress up to the job's end: its phases, and its note. */
static void expect_told(const char *phases, const char *note)
{
	char all[256] = "", phase[64] = "", text[TEXT_BYTES_MAX + 1], notes[2 * TEXT_BYTES_MAX] = "";
	struct fields f;

	while (listen_to(gpuwmd) && strcmp(message.method, "loader_progress") == 0) {
		fields_of(&f, message.body);
		fields_text(&f, "phase", text, sizeof(text));
		if (strcmp(phase, text) != 0)
			strcat(strcat(all, strcpy(phase, text)), ",");
		if (strcmp(text, "verifying") == 0)
			cr_expect_eq(fields_u64(&f, "total"), SEGMENT);
		if (fields_have(&f, "note")) {
			fields_text(&f, "note", text, sizeof(text));
			strcat(notes, text);
		}
	}
	cr_expect_str_eq(all, phases);
	cr_expect(strstr(notes, note), "\"%s\" does not say \"%s\"", notes, note);
	cr_assert_str_eq(message.method, "loader_done");
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "error"));
	answer_empty();
	expect_end(0);
}

Test(verify, tells_that_all_is_as_it_was)
{
	verify(-1);
	expect_told("mapping,verifying,", "read 2.0 MiB in ");
}

Test(verify, tells_how_fast_it_was)
{
	verify(-1);
	expect_told("mapping,verifying,", " GiB/s");
}

Test(verify, finds_one_bit_and_names_the_tensor_and_both_digests)
{
	verify(TENSOR - 1);
	expect_done("EBADMSG", "tensor \"t\": the index says digest ");
}

Test(verify, finds_a_bit_that_belongs_to_no_tensor)
{
	verify(SEGMENT - 1);
	expect_done("EBADMSG", "segment 0: the padding in bytes");
}

/* What can't be read is not known to differ. */
Test(verify, memory_that_can_not_be_mapped_does_not_differ)
{
	make_index();
	fds[1] = open("/dev/null", O_RDWR | O_CLOEXEC);
	send_verify(2);
	expect_done("EIO", "segment 0: ");
}

Test(verify, an_index_that_is_none_does_not_make_it_differ)
{
	make_segment(-1);
	fds[0] = open("/dev/null", O_RDWR | O_CLOEXEC);
	send_verify(2);
	expect_done("EIO", "the descriptor of the index is no memfd");
}

Test(verify, descriptors_that_are_missing_do_not_make_it_differ)
{
	make_segment(-1);
	make_index();
	send_verify(1);
	expect_done("EPROTO", "segment 0 came without its descriptor");
}

Test(verify, keeps_a_pace)
{
	chunk = 65536;
	permille = 900;
	verify(-1);
	expect_told("mapping,verifying,", "read 2.0 MiB");
}

Test(verify, finds_a_bit_at_a_pace)
{
	chunk = 65536 + 8;
	permille = 900;
	verify(77777);
	expect_done("EBADMSG", "tensor \"t\"");
}

Test(verify, refuses_a_pace_that_is_none)
{
	permille = 1001;
	verify(-1);
	expect_done("EINVAL", "1 to 1000 are possible");
}

Test(verify, refuses_a_chunk_of_nothing)
{
	chunk = 1;
	verify(-1);
	expect_done("EINVAL", "chunk is 1 bytes; 4096 is the least");
}

/* At one thousandth, in chunks of which each takes 1 us or more, it takes 0.5 s at least. */
Test(verify, is_cancelled_while_it_rests)
{
	char phase[64] = "";
	struct fields f;

	chunk = 4096;
	permille = 1;
	verify(-1);
	while (strcmp(phase, "verifying") != 0) {
		cr_assert(listen_to(gpuwmd));
		fields_of(&f, message.body);
		fields_text(&f, "phase", phase, sizeof(phase));
	}
	notify("cancel");
	expect_done("ECANCELED", "cancelled while verifying");
}
