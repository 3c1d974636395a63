#include "serve.h"

#include "../base/clock.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct taker {
	struct taker *next;
	struct version_id version;
	uint64_t rank;
	uint64_t serves; /* a port; 0: it does not */
	uint64_t sent_on; /* newcomers that were sent to it */
	uint64_t begin_ms, bytes; /* when it came, and what was sent to it since */
	bool tested; /* somebody who found it slow was sent to beside it, to see whether there is more */
	char *address, *name;
};

struct takers {
	pthread_mutex_t lock;
	unsigned most, count;
	struct taker *first;
	/* Of all takers together: bytes a second in the window before, and in the best one; and the window that goes on. */
	uint64_t rate, best;
	uint64_t window_ms, window_bytes;
};

struct takers *takers_new(unsigned most)
{
	struct takers *takers = calloc(1, sizeof(*takers));

	if (!takers)
		return NULL;
	pthread_mutex_init(&takers->lock, NULL);
	takers->most = most;
	return takers;
}

struct takers *takers_free(struct takers *takers)
{
	if (takers)
		pthread_mutex_destroy(&takers->lock);
	free(takers);
	return NULL;
}

void takers_limit(struct takers *takers, unsigned most)
{
	pthread_mutex_lock(&takers->lock);
	takers->most = most;
	pthread_mutex_unlock(&takers->lock);
}

static void taker_free(struct taker *taker)
{
	free(taker->address);
	free(taker->name);
	free(taker);
}

static struct taker *taker_new(const struct peer_take_params *params, const struct link *link)
{
	struct taker *taker = calloc(1, sizeof(*taker));

	if (!taker)
		return NULL;
	taker->version = *params->version;
	taker->rank = params->rank;
	taker->serves = params->serves ? *params->serves : 0;
	taker->begin_ms = clock_steady_ms();
	taker->address = strdup(link_peer_address(link));
	taker->name = strdup(link_peer_name(link));
	if (taker->address && taker->name)
		return taker;
	taker_free(taker);
	return NULL;
}

static bool is_of_part(const struct taker *taker, const struct peer_take_params *params)
{
	return taker->rank == params->rank && version_id_equal(&taker->version, params->version);
}

/* Returns the taker to whom the newcomer is sent, or NULL. */
static struct taker *find_other(const struct takers *takers, const struct peer_take_params *params,
				const struct link *link)
{
	struct taker *found = NULL;
	unsigned count = 0;

	for (struct taker *at = takers->first; at; at = at->next) {
		if (!is_of_part(at, params))
			continue;
		/* A connection of the newcomer that broke may still be noted here. */
		if (params->serves && at->serves == *params->serves &&
		    strcmp(at->address, link_peer_address(link)) == 0)
			continue;
		count++;
		if (at->serves > 0 && (!found || at->sent_on < found->sent_on))
			found = at;
	}
	return count >= takers->most ? found : NULL;
}

/* ---- rates ---- */

static uint64_t per_second(uint64_t bytes, uint64_t ms)
{
	return ms > 0 ? bytes * 1000 / ms : 0;
}

static uint64_t rate_of(const struct taker *taker)
{
	return per_second(taker->bytes, clock_steady_ms() - taker->begin_ms);
}

static void turn_window(struct takers *takers)
{
	const uint64_t now = clock_steady_ms(), ms = now - takers->window_ms;

	if (ms < TAKERS_WINDOW_MS)
		return;
	takers->rate = per_second(takers->window_bytes, ms);
	if (takers->rate > takers->best)
		takers->best = takers->rate;
	takers->window_ms = now;
	takers->window_bytes = 0;
}

void takers_count_bytes(struct takers *takers, struct taker *taker, uint64_t bytes)
{
	pthread_mutex_lock(&takers->lock);
	turn_window(takers);
	taker->bytes += bytes;
	takers->window_bytes += bytes;
	pthread_mutex_unlock(&takers->lock);
}

/* A taker of the part that passes on what it has much faster than `pace`; NULL: there is none. */
static struct taker *find_faster(const struct takers *takers, const struct peer_take_params *params)
{
	for (struct taker *at = takers->first; at; at = at->next) {
		if (is_of_part(at, params) && at->serves > 0 && rate_of(at) / TAKERS_FASTER >= *params->pace)
			return at;
	}
	return NULL;
}

/* Returns whether this node may be able to send more than it does. */
static bool has_more(struct takers *takers, const struct peer_take_params *params)
{
	turn_window(takers);
	if (takers->rate < takers->best / TAKERS_FASTER)
		return true;
	for (struct taker *at = takers->first; at; at = at->next) {
		if (!is_of_part(at, params) || at->tested)
			continue;
		at->tested = true;
		return true;
	}
	return false;
}

/* ---- coming and going ---- */

static int redirect_to(struct taker *taker, struct peer_redirect *ret)
{
	ret->host = strdup(taker->address);
	ret->name = strdup(taker->name);
	ret->port = taker->serves;
	taker->sent_on++;
	if (ret->host && ret->name)
		return 1;
	takers_redirect_clear(ret);
	return -ENOMEM;
}

int takers_enter(struct takers *takers, const struct peer_take_params *params, const struct link *link,
		 struct taker **ret_taker, struct peer_redirect *ret_redirect)
{
	struct taker *other = NULL, *taker;
	int r = -ENOMEM;

	pthread_mutex_lock(&takers->lock);
	if (params->pace)
		other = find_faster(takers, params);
	else if (!params->stay)
		other = find_other(takers, params, link);
	if (other) {
		r = redirect_to(other, ret_redirect);
	} else if (params->pace && !has_more(takers, params)) {
		r = -EALREADY;
	} else if ((taker = taker_new(params, link))) {
		taker->next = takers->first;
		takers->first = taker;
		takers->count++;
		*ret_taker = taker;
		r = 0;
	}
	pthread_mutex_unlock(&takers->lock);
	return r;
}

void takers_leave(struct takers *takers, struct taker *taker)
{
	struct taker **at;

	pthread_mutex_lock(&takers->lock);
	for (at = &takers->first; *at != taker; at = &(*at)->next)
		;
	*at = taker->next;
	takers->count--;
	pthread_mutex_unlock(&takers->lock);
	taker_free(taker);
}

void takers_redirect_clear(struct peer_redirect *redirect)
{
	free((char *)(uintptr_t)redirect->host);
	free((char *)(uintptr_t)redirect->name);
	*redirect = (struct peer_redirect){0};
}

unsigned takers_count(struct takers *takers)
{
	unsigned count;

	pthread_mutex_lock(&takers->lock);
	count = takers->count;
	pthread_mutex_unlock(&takers->lock);
	return count;
}
