/* A loader that keeps its CUDA context from one check to the next: on tests/fakecuda. */
#include "tests/support/loader/warm.h"

TestSuite(loader_checker, .timeout = 120);

#ifdef GPUWM_CUDA

#include "base/clock.h"
#include "memory/memory.h"
#include "base/bytes.h"
#include "proto/index/index.h"

#define SEGMENT MIB(2) /* of zeros, as new memory is here */

static uint64_t make_index(struct digest digest, int *ret_fd)
{
	struct index_builder *b = index_builder_new(0, 1);
	uint64_t size = SEGMENT, bytes;
	struct index_tensor_spec spec = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .shape = &size};
	struct error error;

	index_builder_segment(b, size);
	cr_assert_eq(index_builder_tensor(b, &spec, &error), 0);
	index_builder_digest(b, 0, &digest);
	cr_assert_eq(index_builder_finish(b, ret_fd, &bytes, &error), 0, "%s", error.message);
	index_builder_free(b);
	return bytes;
}

static void hand_in_gpu_memory(int publisher, struct digest digest)
{
	struct memory_segment segment;
	struct memory_device device;
	struct message_writer w;
	struct error error;
	int fds[2];

	cr_assert_eq(memory_device_open(GPU0, &device, &error), 0);
	cr_assert_eq(device.ops->create(&device, SEGMENT, &segment, &error), 0);
	cr_assert_eq(device.ops->export(&device, &segment, &error), 0);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_request(&w, 7, "hand_in");
	message_put_u64(&w, "index", 0);
	message_put_u64(&w, "index_bytes", make_index(digest, &fds[0]));
	message_begin_array(&w, "segments");
	message_begin_map(&w, NULL);
	message_put_u64(&w, "fd", 1);
	message_put_u64(&w, "bytes", SEGMENT);
	message_end(&w);
	message_end(&w);
	fds[1] = segment.fd;
	say(publisher, &w, fds, 2);
	close(fds[0]);
	device.ops->release(&device, &segment);
	cr_assert(listen_to(publisher));
	cr_expect_eq(message.error.code, 0, "%s", message.error.message);
	close(publisher);
}

static struct digest digest_of_segment(void)
{
	static const uint8_t zeros[SEGMENT];

	return digest_of(zeros, sizeof(zeros));
}

static void check_once(bool stay)
{
	hand_in_gpu_memory(send_check(GPU0, SEGMENT, true), digest_of_segment());
	expect("loader_checked");
	answer_empty();
	cr_expect(finishes(stay));
}

Test(loader_checker, checks_again_in_the_same_context)
{
	start_with(NULL, NULL);
	check_once(true);
	cr_expect(context_active(0), "it is kept");
	check_once(true);
	check_once(true);
	cr_expect_eq(count_calls("cuModuleLoadData"), 1);
	cr_expect_eq(count_calls("cuMemHostRegister"), 0, "a check needs no buffers");
	stop();
}

Test(loader_checker, leaves_nothing_of_a_check)
{
	unsigned threads;
	int fds;

	start_with(NULL, NULL);
	check_once(true);
	forget();
	fds = fd_count();
	threads = live_threads();
	for (int i = 0; i < 5; i++)
		check_once(true);
	forget();
	cr_expect(comes_to(fds, threads), "%d descriptors, %d before; %u threads, %u before", (int)fd_count(),
		  fds, live_threads(), threads);
	cr_expect_eq(count_calls("cuMemMap"), 6);
	cr_expect_eq(count_calls("cuMemUnmap"), 6);
	/* Each handle that the test made, and each that the loader imported. */
	cr_expect_eq(count_calls("cuMemRelease"), 12);
	cr_expect_eq(count_calls("cuMemAlloc"), count_calls("cuMemFree"));
	stop();
}

Test(loader_checker, keeps_no_context_after_a_check_that_is_not_to)
{
	start_with(NULL, NULL);
	hand_in_gpu_memory(send_check(GPU0, SEGMENT, false), digest_of_segment());
	expect("loader_checked");
	answer_empty();
	cr_expect_not(finishes(true));
	stop_ended();
	cr_expect_not(context_active(0));
}

Test(loader_checker, does_not_stay_after_a_failed_check)
{
	struct fields f;

	start_with(NULL, NULL);
	check_once(true);
	hand_in_gpu_memory(send_check(GPU0, SEGMENT, true), (struct digest){0});
	expect("loader_done");
	fields_of(&f, message.body);
	cr_expect(fields_have(&f, "error"));
	cr_expect_not(fields_have(&f, "keeps"));
	answer_empty();
	stop_ended();
	cr_expect_not(context_active(0));
}

/* What the publisher hands in stays in its socket, for another checker. */
Test(loader_checker, does_not_begin_a_check_in_a_context_that_broke)
{
	int publisher;

	start_to_lose();
	check_once(true);
	break_context();
	publisher = send_check(GPU0, SEGMENT, true);
	cr_expect_not(listen_to(gpuwmd), "%s", message.method);
	close(publisher);
	stop();
}

/* The check makes a context of its own then, which is gone with it. */
Test(loader_checker, offers_no_context_that_could_not_be_made_beside)
{
	const int64_t deadline = clock_deadline(5000);
	int publisher;

	start_with("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:1:2");
	publisher = send_check(GPU0, SEGMENT, true);
	while (count_calls("cuDevicePrimaryCtxRetain") == 0)
		cr_assert_gt(clock_left(deadline), 0);
	hand_in_gpu_memory(publisher, digest_of_segment());
	expect("loader_checked");
	answer_empty();
	cr_expect_not(finishes(true));
	stop_ended();
}

#endif
