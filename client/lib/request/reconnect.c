#include "call.h"

#include "client.h"
#include "../../../base/clock.h"
#include "../connection/dial.h"
#include "lease.h"
#include "../../../base/thread.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>

/* The watcher itself needs little of its stack, but it calls the program's function for lost leases. The kernel gives
 * memory only to the pages that are touched. */
#define STACK_BYTES KIB(256)

/* When a packet arrives that a call reads, the watcher leaves the socket to calls for so long. So a call's many answers wake
 * it once in this time, and not each time. */
#define LEFT_TO_CALLS_MS 100

/* ---- connecting again -------------------------------------------------- */

static int connection_attempt(struct gpuwm_client *client, uint64_t round, int wait_ms,
			      struct connection **ret_connection, struct error *error)
{
	struct reviver *v = &client->reviver;
	struct connection *connection;
	struct hello_result hello;
	struct reply reply;
	int r = dial_socket(&client->place, &connection, error);

	if (r < 0)
		return r;
	/* Now reviver_stop can shut the attempt's connection down. */
	pthread_mutex_lock(&v->lock);
	v->attempt = connection;
	if (v->stopping)
		connection_shutdown(connection);
	pthread_mutex_unlock(&v->lock);
	connection_on_notify(connection, leases_on_notify, client, round);
	r = dial_hello(connection, client->name, wait_ms, &reply, error);
	if (r == 0) {
		r = client_greet(client, &reply, &hello, error);
		reply_clear(&reply);
	}
	if (r == 0)
		r = leases_resume(client, connection, round, error);
	if (r == 0)
		r = claims_resume(v, connection, round, error);
	*ret_connection = connection;
	return r;
}

/* Tries once to connect. Under the lock, which this unlocks meanwhile. */
static void revive(struct gpuwm_client *client, int64_t deadline)
{
	struct reviver *v = &client->reviver;
	struct connection *connection = NULL;
	const uint64_t round = v->round + 1;
	int left = clock_left(deadline), r;
	struct error error;

	v->attempting = true;
	pthread_mutex_unlock(&v->lock);
	r = connection_attempt(client, round, left < 0 || left > CALL_TIMEOUT_MS ? CALL_TIMEOUT_MS : left,
			       &connection, &error);
	pthread_mutex_lock(&v->lock);
	leases_settle(client, r < 0 ? NULL : connection, round);
	v->attempt = NULL;
	v->attempting = false;
	v->round = round;
	if (r == 0) {
		v->connection = connection;
		v->since_ms = clock_steady_ms();
	} else {
		connection_free(connection);
		v->away = error;
		reviver_pause(v);
	}
	if (r == -EPROTONOSUPPORT) {
		v->over = true;
		leases_lose(client, &error);
	}
	pthread_cond_broadcast(&v->changed);
}

/* Waits once for a change, or tries once to connect. Returns 0: the caller looks whether there is a connection. Under the
 * lock, which this unlocks meanwhile. */
static int connection_step(struct gpuwm_client *client, int64_t deadline, struct error *error)
{
	struct reviver *v = &client->reviver;

	if (v->stopping)
		return error_set(error, -ECANCELED, NULL, "the client was closed meanwhile");
	if (v->over) {
		*error = v->away;
		return v->away.code;
	}
	if (clock_left(deadline) == 0)
		return error_set(error, -ECONNREFUSED,
				 "is gpuwmd running? connect sets how long a call waits for it",
				 "gpuwmd went away and did not come back in time: %s", v->away.message);
	/* Another thread is to connect: one that is at it already, or else the watcher, whose attempts are not cut short by a call's
	 * deadline. A call connects itself if there is no watcher, or if the watcher is in the program's function for lost leases. */
	if (v->attempting || (v->watched && !v->telling && !pthread_equal(v->watcher, pthread_self())))
		clock_wait(&v->changed, &v->lock, deadline);
	else if (clock_left(v->next_ms) > 0)
		clock_wait(&v->changed, &v->lock, clock_earlier(deadline, v->next_ms));
	else
		revive(client, deadline);
	return 0;
}

int reconnect_take(struct gpuwm_client *client, uint64_t only, int64_t deadline,
		   struct connection **ret_connection, uint64_t *ret_round, struct error *error)
{
	struct reviver *v = &client->reviver;
	int r = 0;

	pthread_mutex_lock(&v->lock);
	if (only && (!v->connection || v->round != only))
		r = error_set(error, -ECONNRESET, "begin again",
			      "the connection that this was begun on has ended");
	while (r == 0 && !v->connection)
		r = connection_step(client, deadline, error);
	if (r == 0) {
		*ret_connection = connection_keep(v->connection);
		*ret_round = v->round;
	}
	pthread_mutex_unlock(&v->lock);
	return r;
}

/* ---- the watcher ------------------------------------------------------- */

/* Waits until the socket is ready for one of `events`, and returns what it is ready for. Returns 0 if wait_ms has passed,
 * or if reviver_wake was called. */
static short watcher_wait(int wake, int sock, short events, int wait_ms)
{
	struct pollfd polled[] = {{.fd = sock, .events = events}, {.fd = wake, .events = POLLIN}};
	eventfd_t unused;

	while (poll(polled, 2, wait_ms) < 0 && errno == EINTR)
		;
	if (polled[1].revents == 0)
		return polled[0].revents;
	eventfd_read(wake, &unused);
	return 0; /* what the socket is ready for, the next poll returns again */
}

/* Waits until the connection has ended (returns true), until a notification of gpuwmd was read, or until reviver_wake is
 * called. If a call is under way, the call reads all that arrives, notifications too: the socket is left to it for
 * LEFT_TO_CALLS_MS. */
static bool watcher_wait_ended(int wake, struct connection *connection)
{
	const int sock = connection_fd(connection);
	short ready = watcher_wait(wake, sock, POLLRDHUP | POLLIN, -1);

	if (ready == POLLIN && connection_poll_now(connection) <= 0)
		ready = watcher_wait(wake, sock, POLLRDHUP, LEFT_TO_CALLS_MS);
	return ready & ~POLLIN;
}

/* Under the lock, which this unlocks meanwhile. */
static void watch_connection(struct gpuwm_client *client)
{
	struct reviver *v = &client->reviver;
	struct connection *connection = connection_keep(v->connection);
	struct error why;
	bool is_over;

	pthread_mutex_unlock(&v->lock);
	is_over = watcher_wait_ended(v->wake, connection);
	pthread_mutex_lock(&v->lock);
	error_set(&why, -ECONNRESET, NULL, "the connection has ended");
	if (is_over && v->connection == connection && !v->stopping)
		reviver_lose(v, &why);
	connection_free(connection);
}

static void *watcher_run(void *data)
{
	struct gpuwm_client *client = data;
	struct reviver *v = &client->reviver;
	struct error error;

	pthread_setname_np(pthread_self(), "gpuwm-client");
	pthread_mutex_lock(&v->lock);
	while (!v->stopping) {
		if (leases_tell(client))
			continue;
		if (v->over)
			break;
		if (v->connection)
			watch_connection(client);
		else
			connection_step(client, -1, &error);
	}
	pthread_mutex_unlock(&v->lock);
	if (v->orphaned)
		client_free(client);
	return NULL;
}

/* Under the lock. */
static int watcher_begin(struct gpuwm_client *client, struct error *error)
{
	struct reviver *v = &client->reviver;
	int r;

	fork_lock();
	if (v->wake < 0)
		v->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	fork_unlock();
	if (v->wake < 0)
		return error_set(error, -errno,
				 "raise the limit of open files (RLIMIT_NOFILE, ulimit -n), or connect with "
				 "GPUWM_CONNECT_ONCE, which needs none",
				 "no descriptor for the thread that takes leases again after a restart of "
				 "gpuwmd: %s",
				 strerror(errno));
	r = thread_begin(&v->watcher, STACK_BYTES, watcher_run, client);
	v->watched = r == 0;
	if (r == 0)
		return 0;
	return error_set(error, -EAGAIN,
			 "raise the limit of threads (RLIMIT_NPROC, pids.max), or connect with "
			 "GPUWM_CONNECT_ONCE, which needs none",
			 "the thread that takes leases again after a restart of gpuwmd could not be made: %s",
			 strerror(r));
}

int reconnect_watch(struct gpuwm_client *client, struct error *error)
{
	struct reviver *v = &client->reviver;
	int r;

	if (v->once)
		return 0;
	pthread_mutex_lock(&v->lock);
	r = v->watched ? 0 : watcher_begin(client, error);
	pthread_mutex_unlock(&v->lock);
	return r;
}
