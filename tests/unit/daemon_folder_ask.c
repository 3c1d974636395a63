/* Calls into a file system that may not answer. */
#include "base/clock.h"
#include "daemon/restart/folder_ask.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#define WAIT_MS 200

static atomic_uint dropped;

struct question {
	struct folder_ask ask;
	int answer; /* a pipe: each byte is one answer, and its end is the last */
	bool steps;
};

static void run(struct folder_ask *ask)
{
	const struct question *q = (const struct question *)ask;
	char byte;

	while (q->answer >= 0 && read(q->answer, &byte, 1) == 1)
		if (q->steps)
			folder_ask_step(ask);
}

static void drop(struct folder_ask *ask)
{
	free(ask);
	dropped++;
}

static struct question *question(const char *path, int answer)
{
	struct question *q = calloc(1, sizeof(*q));

	cr_assert(q);
	*q = (struct question){.ask = {.path = path, .run = run, .drop = drop}, .answer = answer};
	return q;
}

static int asks(const char *path, int answer)
{
	struct question *q = question(path, answer);
	int r = folder_ask(&q->ask, WAIT_MS);

	if (r == 0)
		free(q);
	return r;
}

static void wait_for_dropped(unsigned count)
{
	const int64_t deadline = clock_deadline(10000);

	while (dropped != count && clock_left(deadline) > 0)
		usleep(1000);
	cr_assert_eq(dropped, count);
}

Test(daemon_folder_ask, an_answer_leaves_the_question_with_the_caller)
{
	cr_assert_eq(asks("/a", -1), 0);
	cr_assert_eq(dropped, 0);
}

Test(daemon_folder_ask, one_folder_that_hangs_is_asked_once_until_it_answers)
{
	int pipes[2];
	uint64_t began;

	cr_assert_eq(pipe(pipes), 0);
	cr_assert_eq(asks("/a", pipes[0]), -ETIMEDOUT);
	cr_assert_eq(dropped, 0); /* the thread has it */
	began = clock_steady_ms();
	cr_assert_eq(folder_ask(&question("/a", -1)->ask, 60000), -ETIMEDOUT);
	cr_assert_lt(clock_steady_ms() - began, 30000);
	cr_assert_eq(dropped, 1);
	cr_assert_eq(asks("/b", -1), 0, "another folder answers");
	close(pipes[1]);
	wait_for_dropped(2);
	cr_assert_eq(asks("/a", -1), 0);
	close(pipes[0]);
}

Test(daemon_folder_ask, few_threads_wait_for_ever)
{
	const char *const folders[] = {"/a", "/b", "/c", "/d"};
	int pipes[2];

	cr_assert_eq(pipe(pipes), 0);
	for (size_t i = 0; i < 4; i++)
		cr_assert_eq(asks(folders[i], pipes[0]), -ETIMEDOUT);
	cr_assert_eq(asks("/e", -1), -ETIMEDOUT);
	close(pipes[1]);
	wait_for_dropped(5);
	cr_assert_eq(asks("/e", -1), 0);
	close(pipes[0]);
}

#define STEPS 12
#define STEP_MS 100 /* all of them take longer than a wait, each a tenth of it */
#define PATIENT_MS 1000

static void *answer_slowly(void *data)
{
	for (int i = 0; i < STEPS; i++) {
		usleep(STEP_MS * 1000);
		cr_assert_eq(write(*(int *)data, "", 1), 1);
	}
	close(*(int *)data);
	return NULL;
}

Test(daemon_folder_ask, who_answers_step_by_step_is_waited_for)
{
	struct question *q;
	pthread_t thread;
	int pipes[2];

	cr_assert_eq(pipe(pipes), 0);
	q = question("/a", pipes[0]);
	q->steps = true;
	cr_assert_eq(pthread_create(&thread, NULL, answer_slowly, &pipes[1]), 0);
	cr_assert_eq(folder_ask(&q->ask, PATIENT_MS), 0);
	pthread_join(thread, NULL);
	free(q);
	close(pipes[0]);
}
