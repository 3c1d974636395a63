#include "listener.h"

#include "../base/clock.h"

#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Who has an address of IPv6 has 2^64 of them. */
#define NETWORK_BYTES 8

void places_begin(struct places *places)
{
	*places = (struct places){0};
	pthread_mutex_init(&places->lock, NULL);
	clock_condition(&places->emptied);
}

void places_end(struct places *places)
{
	pthread_cond_destroy(&places->emptied);
	pthread_mutex_destroy(&places->lock);
}

static void read_address(int fd, uint8_t ret[16])
{
	struct sockaddr_storage address = {0};
	const struct sockaddr_in6 *v6 = (const struct sockaddr_in6 *)&address;
	const struct sockaddr_in *v4 = (const struct sockaddr_in *)&address;
	socklen_t bytes = sizeof(address);

	memset(ret, 0, 16);
	getpeername(fd, (struct sockaddr *)&address, &bytes);
	if (address.ss_family == AF_INET)
		memcpy(ret + 12, &v4->sin_addr, 4);
	else if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr))
		memcpy(ret + 12, &v6->sin6_addr.s6_addr[12], 4);
	else
		memcpy(ret, &v6->sin6_addr, NETWORK_BYTES);
}

struct crowd {
	unsigned unknown, same, same_unknown;
	struct place *slowest; /* the oldest one that is not known */
};

static struct crowd count_crowd(const struct places *places, const uint8_t address[16])
{
	struct crowd crowd = {0};

	for (struct place *at = places->first; at; at = at->next) {
		bool same = memcmp(at->address, address, 16) == 0;

		crowd.same += same;
		crowd.same_unknown += same && !at->link;
		crowd.unknown += !at->link;
		if (!at->link && !crowd.slowest)
			crowd.slowest = at;
	}
	return crowd;
}

/* Returns whether there is room for one more. The thread of one that gives way finds its connection ended. */
static bool places_make_room(struct places *places, const uint8_t address[16])
{
	struct crowd crowd = count_crowd(places, address);

	if (places->count >= PLACES_MAX || crowd.same >= PLACES_PER_ADDRESS_MAX ||
	    crowd.same_unknown >= PLACES_UNKNOWN_PER_ADDRESS_MAX)
		return false;
	if (crowd.unknown >= PLACES_UNKNOWN_MAX) {
		shutdown(crowd.slowest->fd, SHUT_RDWR);
		places->refused++;
	}
	return true;
}

struct place *places_take(struct places *places, int fd)
{
	struct place *place = calloc(1, sizeof(*place));
	bool room;

	if (!place)
		return NULL;
	place->fd = fd;
	read_address(fd, place->address);
	pthread_mutex_lock(&places->lock);
	room = places_make_room(places, place->address);
	if (room) {
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

void places_known(struct places *places, struct place *place, struct link *link)
{
	pthread_mutex_lock(&places->lock);
	place->link = link;
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
	if (--places->count == 0)
		pthread_cond_broadcast(&places->emptied);
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
		pthread_cond_wait(&places->emptied, &places->lock);
	pthread_mutex_unlock(&places->lock);
}

void places_drain(struct places *places, uint64_t wait_ms)
{
	const int64_t deadline = clock_deadline((int64_t)wait_ms);

	pthread_mutex_lock(&places->lock);
	while (places->count > 0 && clock_left(deadline) != 0)
		clock_wait(&places->emptied, &places->lock, deadline);
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

uint64_t places_refused(struct places *places)
{
	uint64_t refused;

	pthread_mutex_lock(&places->lock);
	refused = places->refused;
	places->refused = 0;
	pthread_mutex_unlock(&places->lock);
	return refused;
}
