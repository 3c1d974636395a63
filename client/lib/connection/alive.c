#include "connection.h"

#include "../../../base/clock.h"
#include "../../../base/thread.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utlist.h>

/* A call of the library needs little; only what is touched is taken. */
#define STACK_BYTES KIB(256)

/* Under fork_lock, so that a child finds them in order. */
static struct fork_hook hook;
static struct alive *first;
static bool begun; /* the thread, in this process */

static uint32_t changes; /* atomic; futex: the list has changed */

static void alive_changed(void)
{
	__atomic_add_fetch(&changes, 1, __ATOMIC_SEQ_CST);
	syscall(SYS_futex, &changes, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

/* ---- the thread ---------------------------------------------------------- */

/* Its answer is nobody's. A call that is under way reads it; where there is none, this call does, or answers would fill
 * the socket in time. */
static void connection_ping(struct connection *connection)
{
	struct message_writer w;
	struct error unused;
	enum fate fate;

	message_write_request(&w, request_next_id(), &form_ping, NULL);
	if (connection_try_now(connection, &w, CALL_TIMEOUT_MS, &fate, &unused) == -EBUSY)
		connection_post(connection, &w, &unused);
	message_writer_clear(&w);
}

/* A connection that is due, kept; NULL: none is now, and *ret_wait_ms says when one will be. Without any the thread ends:
 * -1. Under fork_lock. */
static struct connection *alive_take_due(int64_t *ret_wait_ms)
{
	uint64_t now = clock_steady_ms(), next = UINT64_MAX;

	for (struct alive *alive = first; alive; alive = alive->next) {
		if (alive->next_ms <= now) {
			alive->next_ms = now + alive->every_ms;
			return connection_keep(alive->connection);
		}
		next = alive->next_ms < next ? alive->next_ms : next;
	}
	begun = first != NULL;
	*ret_wait_ms = first ? (int64_t)(next - now) : -1;
	return NULL;
}

static void *give_signs(void *unused)
{
	struct connection *connection;
	int64_t wait_ms = 0;

	(void)unused;
	pthread_setname_np(pthread_self(), "gpuwm-alive");
	while (wait_ms >= 0) {
		uint32_t seen = __atomic_load_n(&changes, __ATOMIC_SEQ_CST);

		fork_lock();
		connection = alive_take_due(&wait_ms);
		fork_unlock();
		if (connection) {
			connection_ping(connection);
			connection_free(connection);
		} else if (wait_ms >= 0) {
			const struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000};

			syscall(SYS_futex, &changes, FUTEX_WAIT_PRIVATE, seen, &wait, NULL, 0);
		}
	}
	return NULL;
}

/* What is in the list is the parent's, and so is the thread. */
static void forget_in_child(void *unused)
{
	(void)unused;
	first = NULL;
	begun = false;
}

/* Under fork_lock. */
static int signs_begin(void)
{
	pthread_t thread;
	int r = begun ? 0 : thread_begin(&thread, STACK_BYTES, give_signs, NULL);

	if (begun || r != 0)
		return r;
	pthread_detach(thread);
	if (!hook.in_child || hook.generation != fork_generation())
		fork_watch(&hook, forget_in_child, NULL);
	begun = true;
	return 0;
}

/* ---- publishes ----------------------------------------------------------- */

int alive_begin(struct alive *alive, struct connection *connection, int64_t every_ms, struct error *error)
{
	int r;

	fork_lock();
	*alive = (struct alive){.connection = connection,
				.every_ms = every_ms,
				.next_ms = clock_steady_ms() + every_ms,
				.generation = fork_generation()};
	DL_PREPEND(first, alive);
	r = signs_begin();
	fork_unlock();
	alive_changed();
	if (r == 0)
		return 0;
	alive_end(alive);
	return error_set(error, -EAGAIN, "raise the limit of threads (RLIMIT_NPROC, pids.max)",
			 "the thread that tells gpuwmd that this publisher lives could not be made: %s",
			 strerror(r));
}

void alive_end(struct alive *alive)
{
	if (!alive->connection || alive->generation != fork_generation())
		return;
	fork_lock();
	DL_DELETE(first, alive);
	fork_unlock();
	alive->connection = connection_free(alive->connection);
	alive_changed();
}
