#include "http.h"

#include <sys/ioctl.h>
#include <sys/socket.h>

void places_begin(struct places *places, struct tally *tally)
{
	*places = (struct places){.tally = tally};
	pthread_mutex_init(&places->lock, NULL);
}

void places_end(struct places *places)
{
	pthread_mutex_destroy(&places->lock);
}

/* libmicrohttpd finds the end of the connection, and gives the place back. */
static void places_cut(struct places *places, struct place *place, uint64_t now_ms)
{
	shutdown(place->fd, SHUT_RDWR);
	place->since_ms = now_ms;
	atomic_fetch_add(&places->tally->cut, 1);
}

static bool is_slow(const struct places *places, const struct place *place, uint64_t now_ms)
{
	uint64_t limit_ms = place->asked ? HTTP_REQUEST_MS : HTTP_FIRST_MS;

	if (places->taken >= HTTP_CROWDED && !place->busy)
		limit_ms = HTTP_CROWDED_MS;
	return place->taken && now_ms - place->since_ms >= limit_ms;
}

/* It has not asked, and what it has sent so far was read and is no request. */
static bool is_silent(const struct place *place, uint64_t now_ms)
{
	int pending = 0;

	return place->taken && !place->asked && now_ms - place->since_ms >= HTTP_SILENT_MS &&
	       ioctl(place->fd, FIONREAD, &pending) == 0 && pending == 0;
}

bool places_full(struct places *places, uint64_t now_ms)
{
	struct place *oldest = NULL;
	bool full;

	pthread_mutex_lock(&places->lock);
	full = places->taken >= HTTP_FULL;
	for (size_t i = 0; full && i < HTTP_CONNECTIONS_MAX; i++) {
		struct place *place = &places->places[i];

		if (is_silent(place, now_ms) && (!oldest || place->since_ms < oldest->since_ms))
			oldest = place;
	}
	if (oldest)
		places_cut(places, oldest, now_ms);
	pthread_mutex_unlock(&places->lock);
	return full;
}

static void cut_slowest(struct places *places, uint64_t now_ms)
{
	struct place *slowest = NULL;

	for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		struct place *place = &places->places[i];

		if (is_slow(places, place, now_ms) && (!slowest || place->since_ms < slowest->since_ms))
			slowest = place;
	}
	if (slowest)
		places_cut(places, slowest, now_ms);
}

struct place *places_take(struct places *places, int fd, uint64_t now_ms)
{
	struct place *found = NULL;

	pthread_mutex_lock(&places->lock);
	cut_slowest(places, now_ms);
	for (size_t i = 0; i < HTTP_CONNECTIONS_MAX && !found; i++) {
		if (!places->places[i].taken)
			found = &places->places[i];
	}
	if (found) {
		*found = (struct place){.taken = true, .fd = fd, .since_ms = now_ms};
		places->taken++;
	}
	pthread_mutex_unlock(&places->lock);
	return found;
}

void places_busy(struct places *places, struct place *place)
{
	if (!place)
		return;
	pthread_mutex_lock(&places->lock);
	place->asked = place->busy = true;
	pthread_mutex_unlock(&places->lock);
}

static void begin_time_anew(struct place *place, uint64_t now_ms)
{
	place->since_ms = now_ms;
	place->busy = false;
}

void places_answered(struct places *places, struct place *place, uint64_t now_ms)
{
	if (!place)
		return;
	pthread_mutex_lock(&places->lock);
	begin_time_anew(place, now_ms);
	pthread_mutex_unlock(&places->lock);
}

void places_done(struct places *places, struct place *place, uint64_t now_ms)
{
	if (!place)
		return;
	pthread_mutex_lock(&places->lock);
	begin_time_anew(place, now_ms);
	/* Whoever asks again and again would keep the place for ever. What was sent still arrives. */
	if (places->taken >= HTTP_CROWDED)
		shutdown(place->fd, SHUT_RDWR);
	pthread_mutex_unlock(&places->lock);
}

void places_give(struct places *places, struct place *place)
{
	if (!place)
		return;
	pthread_mutex_lock(&places->lock);
	place->taken = false;
	places->taken--;
	pthread_mutex_unlock(&places->lock);
}

void places_look(struct places *places, uint64_t now_ms)
{
	pthread_mutex_lock(&places->lock);
	for (size_t i = 0; i < HTTP_CONNECTIONS_MAX; i++) {
		if (is_slow(places, &places->places[i], now_ms))
			places_cut(places, &places->places[i], now_ms);
	}
	pthread_mutex_unlock(&places->lock);
}
