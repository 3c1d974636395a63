#include "warm.h"

#include "tests/support/any/own_folder.h"

#ifdef GPUWM_CUDA

#include "base/clock.h"
#include "memory/cuda.h"

static char calls[64]; /* the log of the driver's calls */

void start_with(const char *variable, const char *value)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");
	char run[32];

	if (!backend || strcmp(backend, "fakecuda") != 0)
		cr_skip_test("needs the stand-in for the driver");
	snprintf(run, sizeof(run), "warm%d", (int)getpid());
	snprintf(calls, sizeof(calls), "%s/warm", own_folder());
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

void start_to_lose(void)
{
	snprintf(lost, sizeof(lost), "%s/warm-lost", own_folder());
	start_with("FAKECUDA_LOST", lost);
}

void break_context(void)
{
	FILE *file = fopen(lost, "we");

	cr_assert(file && fputs("0 ecc\n", file) >= 0 && fclose(file) == 0);
}

unsigned count_calls(const char *function)
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

bool context_active(int ordinal)
{
	const struct cuda_driver *cuda;
	struct error error;
	unsigned flags;
	int active = 0;

	cr_assert_eq(cuda_open(&cuda, &error), 0);
	cuda->cuDevicePrimaryCtxGetState(ordinal, &flags, &active);
	return active;
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

bool finishes(bool stay)
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

void stop(void)
{
	hang_up();
	pthread_join(thread, NULL);
	cr_expect_eq(loader_result, 0, "%d", loader_result);
	finish();
}

void stop_ended(void)
{
	pthread_join(thread, NULL);
	cr_expect_eq(loader_result, 0, "%d", loader_result);
	hang_up();
	finish();
}

unsigned live_threads(void)
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

#define ENDS_MS 5000 /* what threads of a load take to end, beside other tests */

bool comes_to(int fds, unsigned threads)
{
	const int64_t deadline = clock_deadline(ENDS_MS);

	while (fd_count() > fds || live_threads() > threads) {
		if (clock_left(deadline) == 0)
			return false;
		sched_yield();
	}
	return true;
}

#endif
