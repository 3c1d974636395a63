/* Bells of a control memory: who sleeps is woken, whatever happens to the others. */
#include "proto/control.h"
#include "tests/support/any/threads.h"
#include "tests/support/any/until.h"

#include <criterion/criterion.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { SLEEPERS = 4, ROUNDS = 20000 };

static struct control control;
static struct control_bell *bell;

static void begin(void)
{
	static const struct version_id region = {{1}};
	void *memory = mmap(NULL, control_bytes((struct control_shape){.chunks = 1}), PROT_READ | PROT_WRITE,
			    MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	cr_assert_neq(memory, MAP_FAILED);
	control = control_at(memory, (struct control_shape){.chunks = 1});
	control_begin(&control, &region);
	bell = &control.head->freed;
}

static void end(void)
{
	munmap(control.head, control_bytes((struct control_shape){.chunks = 1}));
}

TestSuite(bell, .init = begin, .fini = end, .timeout = 60);

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void *sleep_once(void *data)
{
	struct control_bell *which = data;

	control_sleep(which, atomic_load(&which->rung), -1);
	return NULL;
}

static void start(pthread_t *threads_, struct control_bell *which)
{
	for (int i = 0; i < SLEEPERS; i++)
		cr_assert_eq(pthread_create(&threads_[i], NULL, sleep_once, which), 0);
	UNTIL(atomic_load(&which->sleepers) == SLEEPERS && thread_sleeps_in(getpid(), NULL, SYS_futex));
}

static void join(pthread_t *threads_)
{
	for (int i = 0; i < SLEEPERS; i++)
		pthread_join(threads_[i], NULL);
}

Test(bell, wakes_all_who_sleep)
{
	pthread_t sleepers[SLEEPERS];

	start(sleepers, bell);
	/* One that counts as a sleeper may be about to sleep: it finds that the bell has rung. */
	control_ring(bell);
	join(sleepers);
	cr_expect_eq(bell->sleepers, 0);
}

Test(bell, who_saw_an_earlier_ring_does_not_sleep)
{
	const uint32_t seen = bell->rung;

	control_ring(bell);
	control_sleep(bell, seen, -1);
}

Test(bell, sleeps_no_longer_than_it_is_told)
{
	const int64_t before = now_ms();

	control_sleep(bell, bell->rung, 0);
	cr_expect_lt(now_ms() - before, 1000);
	control_sleep(bell, bell->rung, 1100);
	cr_expect_geq(now_ms() - before, 1100);
}

Test(bell, all_bells_ring_when_the_region_ends_and_when_a_user_leaves)
{
	struct control_bell *bells[] = {&control.head->freed, &control.head->put, &control.head->got};
	pthread_t sleepers[SLEEPERS];

	for (int i = 0; i < 3; i++) {
		start(sleepers, bells[i]);
		control_user_left(&control, 3);
		join(sleepers);
		start(sleepers, bells[i]);
		control_ended(&control, CONTROL_OWNER_DIED, 7);
		join(sleepers);
	}
	cr_expect_eq(control.head->ended, CONTROL_OWNER_DIED);
	cr_expect_eq(control.head->ended_by, 7);
}

static void *sleep_on_lock(void *data)
{
	(void)data;
	syscall(SYS_futex, &control.head->lock, FUTEX_WAIT, 5, NULL, NULL, 0);
	return NULL;
}

/* Whoever opened the lock had woken one sleeper, which died before it took the lock. */
Test(bell, who_waits_for_the_lock_looks_again_when_any_user_leaves)
{
	pthread_t sleeper;

	control.head->lock = 5;
	cr_assert_eq(pthread_create(&sleeper, NULL, sleep_on_lock, NULL), 0);
	UNTIL(thread_sleeps_in(getpid(), NULL, SYS_futex));
	control_user_left(&control, 9);
	pthread_join(sleeper, NULL);
	cr_expect_eq(control.head->lock, 5);
}

/* ---- no ring is lost ----------------------------------------------------- */

static _Atomic uint32_t turn;

/* Each takes its turn and rings for the next one. If one ring were lost, nobody would go on. */
static void *take_turns(void *data)
{
	const uint32_t mine = (uint32_t)(uintptr_t)data;

	for (uint32_t i = 0; i < ROUNDS; i++) {
		for (;;) {
			const uint32_t seen = atomic_load(&bell->rung);

			if (atomic_load(&turn) == i * SLEEPERS + mine)
				break;
			control_sleep(bell, seen, -1);
		}
		atomic_fetch_add(&turn, 1);
		control_ring(bell);
	}
	return NULL;
}

Test(bell, no_ring_is_lost_between_threads)
{
	pthread_t players[SLEEPERS];

	turn = 0;
	for (uintptr_t i = 0; i < SLEEPERS; i++)
		cr_assert_eq(pthread_create(&players[i], NULL, take_turns, (void *)i), 0);
	join(players);
	cr_expect_eq(turn, SLEEPERS * ROUNDS);
	cr_expect_eq(bell->sleepers, 0);
}

Test(bell, a_sleeper_that_is_killed_takes_nobody_with_it)
{
	pthread_t sleepers[SLEEPERS];
	pid_t child = fork();

	if (child == 0) {
		control_sleep(bell, bell->rung, -1);
		_exit(0);
	}
	UNTIL(atomic_load(&bell->sleepers) == 1);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	for (int i = 0; i < SLEEPERS; i++)
		cr_assert_eq(pthread_create(&sleepers[i], NULL, sleep_once, bell), 0);
	UNTIL(atomic_load(&bell->sleepers) == 1 + SLEEPERS);
	control_ring(bell);
	join(sleepers);
}
