#include "reaper.h"

#include "clock.h"
#include "fork.h"
#include "thread.h"
#include "../include/gpuwm/client.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* What the driver takes to wait and to unmap; only what is touched is taken. */
#define STACK_BYTES MIB(1)

/* A stream capture takes from a few ms to seconds, and memory that waits for its end is in nobody's way. */
#define RETRY_MS 50

/* How long exit waits for memory that is being unmapped, so that the driver does not end meanwhile. 120 GiB take
 * 41 ms (H200): what takes ten times as long hangs. */
#define EXIT_MS 400

static struct fork_hook hook;
static bool begun; /* under fork_lock: the thread, in this process */
static bool exit_watched; /* under fork_lock */

static struct keep *given; /* atomic: a stack, newest first */
static uint32_t calls; /* atomic; futex: changes with each that is given */
static struct keep *waiting; /* the thread's own */

static uint32_t working; /* atomic; futex: the thread is between reaper_enter and reaper_leave */
static bool ending; /* atomic: exit has begun */
static unsigned captures; /* atomic: that were told, and go on */

/* Until the word is not `value` any more, is woken, or time has run out; wait_ms -1: for ever. */
static void word_wait(uint32_t *word, uint32_t value, int wait_ms)
{
	struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000L};

	syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, value, wait_ms < 0 ? NULL : &wait, NULL, 0);
}

/* All who wait for it. Leaves errno as it was. */
static void word_wake(uint32_t *word)
{
	int saved = errno;

	syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
	errno = saved;
}

static void reaper_wake(void)
{
	__atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
	word_wake(&calls);
}

/* ---- exit ---------------------------------------------------------------- */

/* The driver may be gone by now: the kernel takes back what is left. */
static void stay(void)
{
	for (;;)
		pause();
}

static bool exit_has_begun(void)
{
	return __atomic_load_n(&ending, __ATOMIC_SEQ_CST);
}

static void at_exit(void)
{
	const int64_t deadline = clock_deadline(EXIT_MS);

	__atomic_store_n(&ending, true, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&working, __ATOMIC_SEQ_CST) && clock_left(deadline) > 0)
		word_wait(&working, 1, clock_left(deadline));
}

void reaper_go_on(void)
{
	if (!exit_has_begun())
		return;
	reaper_leave();
	stay();
}

bool reaper_enter(void)
{
	__atomic_store_n(&working, 1, __ATOMIC_SEQ_CST);
	reaper_go_on();
	if (!capture_is_told())
		return true;
	reaper_leave();
	return false;
}

void reaper_leave(void)
{
	__atomic_store_n(&working, 0, __ATOMIC_SEQ_CST);
	word_wake(&working);
}

/* ---- captures ------------------------------------------------------------ */

bool capture_is_told(void)
{
	return __atomic_load_n(&captures, __ATOMIC_SEQ_CST) > 0;
}

void gpuwm_capture_begin(void)
{
	__atomic_add_fetch(&captures, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&working, __ATOMIC_SEQ_CST))
		word_wait(&working, 1, -1);
}

void gpuwm_capture_end(void)
{
	unsigned now = __atomic_load_n(&captures, __ATOMIC_RELAXED);

	/* A child has none of its parent's. */
	while (now > 0 &&
	       !__atomic_compare_exchange_n(&captures, &now, now - 1, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED))
		;
	reaper_wake();
}

/* ---- the thread ---------------------------------------------------------- */

/* False: some are to be asked again. */
static bool end_waiting(void)
{
	struct keep **link = &waiting;

	while (*link) {
		struct keep *keep = *link, *next = keep->next;

		if (exit_has_begun())
			stay();
		if (keep->end(keep) == -EBUSY)
			link = &keep->next;
		else
			*link = next;
	}
	return !waiting;
}

static void *reap(void *unused)
{
	struct keep *keep, *next;

	(void)unused;
	pthread_setname_np(pthread_self(), "gpuwm-reaper");
	for (;;) {
		uint32_t seen = __atomic_load_n(&calls, __ATOMIC_SEQ_CST);

		for (keep = __atomic_exchange_n(&given, NULL, __ATOMIC_ACQUIRE); keep; keep = next) {
			next = keep->next;
			keep->next = waiting;
			waiting = keep;
		}
		word_wait(&calls, seen, end_waiting() ? -1 : RETRY_MS);
	}
	return NULL;
}

/* What waited was the parent's, and so is the thread. */
static void forget_in_child(void *unused)
{
	(void)unused;
	begun = false;
	given = waiting = NULL;
	working = 0;
	captures = 0;
}

/* Under fork_lock. */
static int reaper_start_thread(void)
{
	pthread_t thread;
	int r = 0;

	if (begun)
		return 0;
	/* After the driver was opened, so that this comes before its own end. */
	if (!exit_watched && atexit(at_exit) != 0)
		return ENOMEM;
	exit_watched = true;
	r = thread_begin(&thread, STACK_BYTES, reap, NULL);
	if (r != 0)
		return r;
	pthread_detach(thread);
	fork_watch(&hook, forget_in_child, NULL);
	__atomic_store_n(&begun, true, __ATOMIC_RELEASE);
	return 0;
}

static int reaper_begin(struct error *error)
{
	int r;

	if (__atomic_load_n(&begun, __ATOMIC_ACQUIRE))
		return 0;
	fork_lock();
	r = reaper_start_thread();
	fork_unlock();
	if (r == 0)
		return 0;
	return error_set(error, -EAGAIN, "raise the limit of threads (RLIMIT_NPROC, pids.max)",
			 "the thread that unmaps memory after its last use could not be made: %s", strerror(r));
}

/* ---- counting ------------------------------------------------------------ */

void keep_init(struct keep *keep, int (*end)(struct keep *keep))
{
	*keep = (struct keep){.uses = 1, .generation = fork_generation(), .end = end};
}

static bool is_parents(const struct keep *keep)
{
	return keep->generation != fork_generation();
}

int keep_use(struct keep *keep, struct error *error)
{
	int r;

	if (is_parents(keep))
		return error_set(error, -ECHILD, "connect again in the child",
				 "this was made before a fork, by the parent process");
	r = reaper_begin(error);
	if (r == 0)
		__atomic_add_fetch(&keep->uses, 1, __ATOMIC_RELAXED);
	return r;
}

void keep_unuse(struct keep *keep)
{
	struct keep *first;

	if (is_parents(keep) || __atomic_sub_fetch(&keep->uses, 1, __ATOMIC_ACQ_REL) > 0)
		return;
	first = __atomic_load_n(&given, __ATOMIC_RELAXED);
	do
		keep->next = first;
	while (!__atomic_compare_exchange_n(&given, &first, keep, true, __ATOMIC_SEQ_CST, __ATOMIC_RELAXED));
	reaper_wake();
}

void keep_give_up(struct keep *keep)
{
	if (is_parents(keep))
		return;
	reaper_begin(NULL);
	keep_unuse(keep);
}

unsigned keep_others(const struct keep *keep)
{
	return __atomic_load_n(&keep->uses, __ATOMIC_RELAXED) - 1;
}

bool keep_claim(struct keep *keep)
{
	unsigned only = 1;

	return __atomic_compare_exchange_n(&keep->uses, &only, 0, false, __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
}

void keep_put_back(struct keep *keep)
{
	__atomic_store_n(&keep->uses, 1, __ATOMIC_RELEASE);
}
