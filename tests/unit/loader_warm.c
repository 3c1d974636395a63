/* A loader that keeps its CUDA contexts from one load to the next: on tests/fakecuda. */
#include "tests/support/loader/warm.h"

#include <errno.h>

TestSuite(loader_warm, .timeout = 120);

#ifdef GPUWM_CUDA

static void send_keeping_load(const char *first, const char *second)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "job");
	message_put_u64(&w, "job", 1);
	message_put_text(&w, "kind", "load");
	message_put_text(&w, "source", folder);
	message_put_text(&w, "model", "m");
	message_put_text(&w, "tag", "v1");
	message_put_bool(&w, "keep", true);
	message_begin_array(&w, "devices");
	message_put_text(&w, NULL, first);
	if (second)
		message_put_text(&w, NULL, second);
	message_end(&w);
	message_begin_array(&w, "roots");
	message_put_text(&w, NULL, folder);
	message_end(&w);
	say(gpuwmd, &w, NULL, 0);
}

static void take_part(void)
{
	struct part list;
	struct check_result result;
	struct check_part part;
	struct error error;

	expect("loader_checked");
	read_part(&part, &list);
	cr_expect_eq(check_part(&part, NULL, NULL, &result, &error), 0, "%s", error.message);
	answer_empty();
}

static void load_once(bool stay)
{
	send_keeping_load(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	take_part();
	cr_expect(finishes(stay));
}

Test(loader_warm, loads_again_in_the_same_context)
{
	start_with(NULL, NULL);
	load_once(true);
	cr_expect(context_active(0), "it is kept");
	load_once(true);
	load_once(true);
	cr_expect_eq(count_calls("cuMemHostRegister"), 1, "the buffers are kept too");
	cr_expect_eq(count_calls("cuModuleLoadData"), 1, "and the kernel");
	stop();
}

/* Besides the context and the buffers nothing of a load is left: descriptors stand for memory and mappings here. */
Test(loader_warm, leaves_nothing_of_a_load)
{
	unsigned threads;
	int fds;

	start_with(NULL, NULL);
	load_once(true);
	forget();
	fds = fd_count();
	threads = live_threads();
	for (int i = 0; i < 5; i++)
		load_once(true);
	forget();
	/* Of five loads each would leave one at least. */
	cr_expect(comes_to(fds, threads), "%d descriptors, %d before; %u threads, %u before", (int)fd_count(),
		  fds, live_threads(), threads);
	cr_expect_eq(count_calls("cuStreamCreate"), count_calls("cuStreamDestroy"));
	cr_expect_eq(count_calls("cuEventCreate"), count_calls("cuEventDestroy"));
	stop();
}

Test(loader_warm, ends_where_gpuwmd_does_not_want_it)
{
	start_with(NULL, NULL);
	load_once(false);
	stop_ended();
	cr_expect_not(context_active(0));
}

Test(loader_warm, makes_the_context_of_another_gpu_besides)
{
	start_with(NULL, NULL);
	load_once(true);
	send_keeping_load(GPU0, GPU1);
	for (int i = 0; i < 2; i++) {
		expect("publish_begin");
		answer_begin();
	}
	for (int i = 0; i < 2; i++)
		take_part();
	cr_expect(finishes(true));
	cr_expect(context_active(0) && context_active(1));
	cr_expect_eq(count_calls("cuMemHostRegister"), 1);
	stop();
}

Test(loader_warm, makes_contexts_before_there_is_a_load)
{
	struct message_writer w;
	struct fields f;

	start_with(NULL, NULL);
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "warm");
	message_begin_array(&w, "devices");
	message_put_text(&w, NULL, GPU0);
	message_put_text(&w, NULL, GPU1);
	message_end(&w);
	say(gpuwmd, &w, NULL, 0);
	expect("loader_warm");
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "error"));
	cr_expect(context_active(0) && context_active(1));
	cr_expect_eq(count_calls("cuMemHostRegister"), 1);
	load_once(true);
	cr_expect_eq(count_calls("cuMemHostRegister"), 1);
	stop();
}

Test(loader_warm, says_why_it_has_no_context)
{
	struct message_writer w;
	struct error error = {0};
	struct fields f;

	start_with("FAKECUDA_FAIL", "cuDevicePrimaryCtxRetain:0:2");
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, "warm");
	message_begin_array(&w, "devices");
	message_put_text(&w, NULL, GPU0);
	message_end(&w);
	say(gpuwmd, &w, NULL, 0);
	expect("loader_warm");
	fields_of(&f, message.body);
	cr_assert(fields_error(&f, "error", &error));
	cr_expect_eq(error.code, -ENOSPC, "%s", error.message);
	stop();
}

/* gpuwmd gives what it did not begin to another loader. */
Test(loader_warm, does_not_begin_a_load_in_a_context_that_broke)
{
	start_to_lose();
	load_once(true);
	break_context();
	send_keeping_load(GPU0, NULL);
	cr_expect_not(listen_to(gpuwmd), "%s", message.method);
	stop();
}

Test(loader_warm, does_not_stay_after_a_failed_load)
{
	struct fields f;

	start_with(NULL, NULL);
	load_once(true);
	cr_assert_eq(unlink(in_folder("model.safetensors")), 0);
	send_keeping_load(GPU0, NULL);
	expect("loader_done");
	fields_of(&f, message.body);
	cr_expect(fields_have(&f, "error"));
	cr_expect_not(fields_have(&f, "keeps"));
	answer_empty();
	stop_ended();
	cr_expect_not(context_active(0));
}

/* It made its version; what its context is worth is another matter. */
Test(loader_warm, does_not_offer_a_context_that_broke)
{
	start_to_lose();
	send_keeping_load(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	expect("loader_checked");
	break_context();
	answer_empty();
	cr_expect_not(finishes(false));
	stop_ended();
}

#endif
