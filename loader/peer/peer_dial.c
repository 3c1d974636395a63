#include "peer_dial.h"

#include "../../base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define LOOK_MS 20

struct attempt {
	struct peer_dial *dial;
	struct peer_place place;
	pthread_t thread;
	bool runs; /* the thread is to be joined */
	bool ended; /* guarded by the lock, as what follows until `told` */
	struct link *link;
	struct error error;
	bool told; /* of the caller's thread, as `runs` */
};

struct peer_dial {
	struct peer_keys *keys;
	pthread_mutex_t lock;
	pthread_cond_t ended;
	size_t count, begun;
	int64_t next; /* when the next one is tried, if nobody has answered */
	struct attempt attempts[];
};

struct peer_dial *peer_dial_new(struct peer_keys *keys, const struct peer_places *places, bool only_busy)
{
	struct peer_dial *dial = calloc(1, sizeof(*dial) + places->count * sizeof(dial->attempts[0]));

	if (!dial)
		return NULL;
	dial->keys = keys;
	dial->count = places->count;
	pthread_mutex_init(&dial->lock, NULL);
	clock_condition(&dial->ended);
	for (size_t i = 0; i < places->count; i++) {
		dial->attempts[i].dial = dial;
		dial->attempts[i].place = places->items[i];
		dial->attempts[i].told = only_busy && !peer_place_is_busy(&places->items[i]);
		dial->attempts[i].ended = dial->attempts[i].told;
	}
	return dial;
}

static void *dial_run(void *user_data)
{
	struct attempt *attempt = user_data;
	struct peer_dial *dial = attempt->dial;
	const struct link_target target = peer_place_target(&attempt->place);
	struct link *link = NULL;
	struct error error = {0};

	if (link_connect(dial->keys, &target, LINK_HANDSHAKE_MS, &link, &error) < 0)
		link = NULL;
	pthread_mutex_lock(&dial->lock);
	attempt->link = link;
	attempt->error = error;
	attempt->ended = true;
	pthread_cond_signal(&dial->ended);
	pthread_mutex_unlock(&dial->lock);
	return NULL;
}

static void begin_next(struct peer_dial *dial)
{
	struct attempt *attempt = &dial->attempts[dial->begun++];
	int r = pthread_create(&attempt->thread, NULL, dial_run, attempt);

	attempt->runs = r == 0;
	if (r != 0) {
		error_set(&attempt->error, -EAGAIN, NULL, "no thread can be made to ask %s: %s",
			  attempt->place.host, strerror(r));
		attempt->ended = true;
	}
	dial->next = clock_deadline(PEER_DIAL_DELAY_MS);
}

/* Sets *ret to the first one in the list that has ended and that the caller does not know of, or to NULL.
 * Returns false if nothing is left to wait for. The caller holds the lock. */
static bool wait_a_moment(struct peer_dial *dial, struct attempt **ret)
{
	size_t running = 0;

	*ret = NULL;
	while (dial->begun < dial->count && dial->attempts[dial->begun].told)
		dial->begun++; /* it is left out */
	for (size_t i = 0; i < dial->begun; i++) {
		struct attempt *attempt = &dial->attempts[i];

		running += !attempt->ended;
		if (!*ret && attempt->ended && !attempt->told)
			*ret = attempt;
	}
	if (*ret)
		return true;
	if (running == 0 && dial->begun == dial->count)
		return false;
	if (dial->begun < dial->count && running < PEER_DIAL_MOST &&
	    (running == 0 || clock_left(dial->next) == 0))
		begin_next(dial);
	clock_wait(&dial->ended, &dial->lock, clock_deadline(LOOK_MS));
	return true;
}

int peer_dial_next(struct peer_dial *dial, int (*look)(void *user_data), void *user_data,
		   struct peer_dialled *ret)
{
	struct attempt *attempt = NULL;
	bool left = true;
	int r = 0;

	while (r == 0 && left && !attempt) {
		pthread_mutex_lock(&dial->lock);
		left = wait_a_moment(dial, &attempt);
		pthread_mutex_unlock(&dial->lock);
		if (!attempt)
			r = look(user_data);
	}
	if (!attempt)
		return r;
	attempt->told = true;
	*ret = (struct peer_dialled){(size_t)(attempt - dial->attempts), attempt->link, attempt->error};
	attempt->link = NULL;
	return 1;
}

void peer_dial_free(struct peer_dial *dial)
{
	if (!dial)
		return;
	for (size_t i = 0; i < dial->begun; i++) {
		if (dial->attempts[i].runs)
			pthread_join(dial->attempts[i].thread, NULL);
		link_close(dial->attempts[i].link);
	}
	pthread_cond_destroy(&dial->ended);
	pthread_mutex_destroy(&dial->lock);
	free(dial);
}
