#include "client.h"

#include "../../../base/clock.h"

#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

/* If a connection lived for so long, the client connects again without a longer pause. A gpuwmd that dies earlier says
 * nothing about the next one, so the pause grows. At most 20 gpuwmds a second can live for 50 ms each. */
#define SETTLED_MS 50

/* ---- life -------------------------------------------------------------- */

void reviver_init(struct reviver *v)
{
	pthread_mutex_init(&v->lock, NULL);
	clock_condition(&v->changed);
	v->round = 1;
	v->wake = -1;
	v->since_ms = clock_steady_ms();
	v->pause_ms = RECONNECT_MIN_MS;
}

bool reviver_stop(struct reviver *v)
{
	if (!v->watched)
		return true;
	pthread_mutex_lock(&v->lock);
	v->stopping = true;
	/* The watcher waits in poll for its socket, or for `changed`. */
	if (v->connection)
		connection_shutdown(v->connection);
	if (v->attempt)
		connection_shutdown(v->attempt);
	pthread_cond_broadcast(&v->changed);
	pthread_mutex_unlock(&v->lock);
	if (pthread_equal(v->watcher, pthread_self())) {
		pthread_detach(v->watcher);
		v->orphaned = true;
		return false;
	}
	pthread_join(v->watcher, NULL);
	return true;
}

void reviver_in_child(struct reviver *v)
{
	if (v->wake >= 0)
		close(v->wake);
	v->wake = -1;
}

void reviver_clear(struct reviver *v, bool in_child)
{
	connection_free(v->connection);
	if (v->wake >= 0)
		close(v->wake);
	/* In a child the lock may be held by a thread of the parent, which the child does not have. */
	if (in_child)
		return;
	pthread_cond_destroy(&v->changed);
	pthread_mutex_destroy(&v->lock);
}

/* ---- pauses ------------------------------------------------------------ */

void reviver_pause(struct reviver *v)
{
	uint32_t random = 0;

	/* A random time between half of the pause and all of it, so that the clients of one gpuwmd do not all come back at the same
	 * moment. */
	(void)!getrandom(&random, sizeof(random), GRND_NONBLOCK);
	v->next_ms = clock_deadline(v->pause_ms - (int64_t)(random % (uint32_t)(v->pause_ms / 2 + 1)));
	v->pause_ms = v->pause_ms * 2 < RECONNECT_MAX_MS ? v->pause_ms * 2 : RECONNECT_MAX_MS;
}

/* ---- the end of a connection ------------------------------------------- */

void reviver_lose(struct reviver *v, const struct error *why)
{
	connection_shutdown(v->connection);
	v->connection = connection_free(v->connection);
	v->away = *why;
	if (clock_steady_ms() - v->since_ms >= SETTLED_MS)
		v->pause_ms = RECONNECT_MIN_MS;
	reviver_pause(v);
	pthread_cond_broadcast(&v->changed);
}

void reviver_ended(struct reviver *v, const struct connection *connection, const struct error *why)
{
	if (v->once)
		return;
	pthread_mutex_lock(&v->lock);
	if (v->connection == connection)
		reviver_lose(v, why);
	pthread_mutex_unlock(&v->lock);
}

/* ---- the watcher's sleep ------------------------------------------------ */

void reviver_wake(struct reviver *v)
{
	pthread_cond_broadcast(&v->changed);
	if (v->wake >= 0)
		eventfd_write(v->wake, 1);
}
