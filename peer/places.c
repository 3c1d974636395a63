#include "places.h"

#include "../base/clock.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

void places_begin(struct places *places)
{
	*places = (struct places){0};
	pthread_mutex_init(&places->lock, NULL);
	clock_condition(&places->left);
}

void places_end(struct places *places)
{
	pthread_cond_destroy(&places->left);
	pthread_mutex_destroy(&places->lock);
}

/* ---- unknown connections ---- */

static bool is_unknown(const struct place *place)
{
	return !place->link && !place->leaving;
}

static unsigned count_unknown(const struct places *places, const struct origin *origin)
{
	unsigned count = 0;

	for (const struct place *at = places->first; at; at = at->next)
		count += is_unknown(at) && (!origin || origin_same(&at->origin, origin));
	return count;
}

static unsigned count_leaving(const struct places *places)
{
	unsigned count = 0;

	for (const struct place *at = places->first; at; at = at->next)
		count += at->leaving;
	return count;
}

static struct place *oldest_unknown(const struct places *places, const struct origin *origin)
{
	struct place *at = places->first;

	while (at && !(is_unknown(at) && origin_same(&at->origin, origin)))
		at = at->next;
	return at;
}

/* The origin with most unknown connections; NULL: there are none. */
static const struct origin *most_silent(const struct places *places)
{
	const struct origin *most = NULL;
	unsigned largest = 0;

	for (const struct place *at = places->first; at; at = at->next) {
		unsigned count = is_unknown(at) ? count_unknown(places, &at->origin) : 0;

		if (count > largest) {
			largest = count;
			most = &at->origin;
		}
	}
	return most;
}

/* Its thread finds the connection ended. */
static void give_way(struct places *places, struct place *place)
{
	if (!place)
		return;
	shutdown(place->fd, SHUT_RDWR);
	place->leaving = true;
	places->refused++;
}

static void places_make_room(struct places *places, const struct origin *origin)
{
	if (count_unknown(places, origin) >= PLACES_UNKNOWN_PER_ORIGIN_MAX)
		give_way(places, oldest_unknown(places, origin));
	else if (count_unknown(places, NULL) >= PLACES_UNKNOWN_MAX)
		give_way(places, oldest_unknown(places, most_silent(places)));
}

static bool places_wait_leaving(struct places *places)
{
	const int64_t deadline = clock_deadline(PLACES_LEAVING_MS);

	while (count_leaving(places) >= PLACES_LEAVING_MAX && clock_left(deadline) != 0)
		clock_wait(&places->left, &places->lock, deadline);
	return count_leaving(places) < PLACES_LEAVING_MAX;
}

struct place *places_take(struct places *places, int fd, const struct origin *origin)
{
	struct place *place = calloc(1, sizeof(*place));
	bool room;

	if (!place)
		return NULL;
	place->fd = fd;
	place->origin = *origin;
	pthread_mutex_lock(&places->lock);
	room = places_wait_leaving(places);
	if (room) {
		places_make_room(places, origin);
		*(places->last ? &places->last->next : &places->first) = place;
		places->last = place;
		places->count++;
	} else {
		places->refused++;
	}
	pthread_mutex_unlock(&places->lock);
	if (room)
		return place;
	free(place);
	return NULL;
}

/* ---- known connections ---- */

struct known {
	unsigned all, of_origin, of_name;
};

static struct known count_known(const struct places *places, const struct origin *origin, const char *name)
{
	struct known known = {0};

	for (const struct place *at = places->first; at; at = at->next) {
		if (!at->link)
			continue;
		known.all++;
		known.of_origin += origin_same(&at->origin, origin);
		known.of_name += name[0] && strcmp(link_peer_name(at->link), name) == 0;
	}
	return known;
}

#define ASK_AGAIN "a load asks again by itself; other nodes may have the version too"

int places_know(struct places *places, struct place *place, struct link *link, struct error *error)
{
	const char *name = link_peer_name(link);
	struct known known;
	int r = 0;

	pthread_mutex_lock(&places->lock);
	known = count_known(places, &place->origin, name);
	if (known.all >= PLACES_MAX)
		r = error_set(error, -EBUSY, ASK_AGAIN,
			      "this node serves %u connections, and no more are served", known.all);
	else if (known.of_origin >= PLACES_PER_NODE_MAX || known.of_name >= PLACES_PER_NODE_MAX)
		r = error_set(error, -EBUSY, ASK_AGAIN,
			      "this node serves %s%s %u connections, and one node gets no more",
			      link_peer(link), name[0] ? " or others with its certificate" : "",
			      known.of_origin > known.of_name ? known.of_origin : known.of_name);
	if (r == 0)
		place->link = link;
	else
		places->refused++;
	pthread_mutex_unlock(&places->lock);
	return r;
}

void places_forget(struct places *places, struct place *place)
{
	pthread_mutex_lock(&places->lock);
	place->link = NULL;
	pthread_mutex_unlock(&places->lock);
}

void places_give(struct places *places, struct place *place)
{
	struct place *before = NULL, *at;

	pthread_mutex_lock(&places->lock);
	for (at = places->first; at != place; at = at->next)
		before = at;
	*(before ? &before->next : &places->first) = place->next;
	if (places->last == place)
		places->last = before;
	places->count--;
	pthread_cond_broadcast(&places->left);
	pthread_mutex_unlock(&places->lock);
	free(place);
}

void places_clear(struct places *places)
{
	pthread_mutex_lock(&places->lock);
	for (struct place *at = places->first; at; at = at->next) {
		if (at->link)
			link_interrupt(at->link);
		else
			shutdown(at->fd, SHUT_RDWR);
	}
	while (places->count > 0)
		pthread_cond_wait(&places->left, &places->lock);
	pthread_mutex_unlock(&places->lock);
}

void places_drain(struct places *places, uint64_t wait_ms)
{
	const int64_t deadline = clock_deadline((int64_t)wait_ms);

	pthread_mutex_lock(&places->lock);
	while (places->count > 0 && clock_left(deadline) != 0)
		clock_wait(&places->left, &places->lock, deadline);
	pthread_mutex_unlock(&places->lock);
}

unsigned places_count(struct places *places)
{
	unsigned count;

	pthread_mutex_lock(&places->lock);
	count = places->count;
	pthread_mutex_unlock(&places->lock);
	return count;
}

unsigned places_known(struct places *places)
{
	unsigned count = 0;

	pthread_mutex_lock(&places->lock);
	for (const struct place *at = places->first; at; at = at->next)
		count += at->link != NULL;
	pthread_mutex_unlock(&places->lock);
	return count;
}

uint64_t places_refused(struct places *places)
{
	uint64_t refused;

	pthread_mutex_lock(&places->lock);
	refused = places->refused;
	places->refused = 0;
	pthread_mutex_unlock(&places->lock);
	return refused;
}
