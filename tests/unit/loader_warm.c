/* A loader that keeps its CUDA contexts from one load to the next: on tests/fakecuda. */
#include "tests/support/loader/daemon.h"

#include "client/lib/clock.h"
#include "client/lib/memory.h"

#include <errno.h>

TestSuite(loader_warm, .timeout = 120);

#ifdef GPUWM_CUDA

#include "client/lib/cuda.h"

#define GPU0 "GPU-fa4e0000-0000-4000-8000-000000000000"
#define GPU1 "GPU-fa4e0000-0000-4000-8000-000000000001"

static char calls[64]; /* the log of the driver's calls */

static void start_with(const char *variable, const char *value)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char run[32];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs the stand-in for the driver");
	snprintf(run, sizeof(run), "warm%d", (int)getpid());
	snprintf(calls, sizeof(calls), "/tmp/gpuwm-warm-%d", (int)getpid());
	setenv("FAKECUDA_RUN", run, 1);
	setenv("FAKECUDA_CONTEXT", "64M", 1);
	setenv("FAKECUDA_LOG", calls, 1);
	if (variable)
		setenv(variable, value, 1);
	start();
	write_model();
	answer_empty();
}

static char lost[64]; /* what FAKECUDA_LOST names */

static void start_to_lose(void)
{
	snprintf(lost, sizeof(lost), "/tmp/gpuwm-warm-lost-%d", (int)getpid());
	start_with("FAKECUDA_LOST", lost);
}

/* Every later call in a context of the first GPU fails. */
static void break_context(void)
{
	FILE *file = fopen(lost, "we");

	cr_assert(file && fputs("0 ecc\n", file) >= 0 && fclose(file) == 0);
}

static unsigned count_calls(const char *function)
{
	FILE *file = fopen(calls, "re");
	unsigned count = 0;
	char line[128];

	cr_assert_not_null(file);
	while (fgets(line, sizeof(line), file))
		count += strstr(line, function) != NULL;
	fclose(file);
	return count;
}

static bool context_active(int ordinal)
{
	const struct cuda_driver *cuda;
	struct error error;
	unsigned flags;
	int active = 0;

	cr_assert_eq(cuda_open(&cuda, &error), 0);
	cuda->cuDevicePrimaryCtxGetState(ordinal, &flags, &active);
	return active;
}

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

static void answer_stay(bool stay)
{
	struct message_writer w;

	message_writer_init(&w, PACKET_BYTES_MAX);
	message_response(&w, message.id);
	if (stay)
		message_put_bool(&w, "stay", true);
	say(gpuwmd, &w, NULL, 0);
	forget();
}

/* loader_done without an error, answered. Whether it offers to stay. */
static bool finishes(bool stay)
{
	struct fields f;
	bool keeps;

	expect("loader_done");
	fields_of(&f, message.body);
	cr_expect_not(fields_have(&f, "error"));
	keeps = fields_bool_or(&f, "keeps", false);
	answer_stay(stay);
	return keeps;
}

static void load_once(bool stay)
{
	send_keeping_load(GPU0, NULL);
	expect("publish_begin");
	answer_begin();
	take_part();
	cr_expect(finishes(stay));
}

static void stop(void)
{
	hang_up();
	pthread_join(thread, NULL);
	cr_expect_eq(loader_result, 0, "%d", loader_result);
	unlink(calls);
	finish();
}

static unsigned live_threads(void)
{
	FILE *file = fopen("/proc/self/status", "re");
	unsigned count = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file) && sscanf(line, "Threads: %u", &count) != 1)
		;
	if (file)
		fclose(file);
	return count;
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

#define ENDS_MS 5000 /* what threads of a load take to end, beside other tests */

/* Descriptors and threads are no more than there were: a thread that ends may take a moment. */
static bool comes_to(int fds, unsigned threads)
{
	const int64_t deadline = clock_deadline(ENDS_MS);

	while (fd_count() > fds || live_threads() > threads) {
		if (clock_left(deadline) == 0)
			return false;
		sched_yield();
	}
	return true;
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
	pthread_join(thread, NULL);
	cr_expect_eq(loader_result, 0);
	cr_expect_not(context_active(0));
	hang_up();
	unlink(calls);
	finish();
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
	unlink(lost);
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
	pthread_join(thread, NULL);
	cr_expect_not(context_active(0));
	hang_up();
	unlink(calls);
	finish();
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
	pthread_join(thread, NULL);
	hang_up();
	unlink(calls);
	unlink(lost);
	finish();
}

#endif
