/* The connections over HTTP. libmicrohttpd limits their number, and how long a client may be silent. This file limits how long a
 * client may take that keeps sending or reading a little, and never finishes. */
#ifndef GPUWM_EXPORTER_PLACES_H
#define GPUWM_EXPORTER_PLACES_H

#include "limits.h"
#include "snapshot.h"

#include <pthread.h>
#include <stdbool.h>

struct place {
	bool taken;
	bool asked; /* a whole request has come, once */
	bool busy; /* a whole request has come, and its answer is being made */
	int fd;
	uint64_t since_ms; /* of the connection's begin, of its last answer's begin, or of that answer's end */
};

struct places {
	pthread_mutex_t lock;
	struct place places[HTTP_CONNECTIONS_MAX];
	unsigned taken;
	struct tally *tally;
};

void places_begin(struct places *places, struct tally *tally);
void places_end(struct places *places);

/* A connection has begun. If there are many, it cuts a silent one. Returns the connection's place, or NULL if
 * there is none. */
struct place *places_take(struct places *places, int fd, uint64_t now_ms);
/* Returns whether new connections have to wait. Then it also cuts the oldest one that never asked. */
bool places_full(struct places *places, uint64_t now_ms);
/* A whole request has come. place may be NULL. */
void places_busy(struct places *places, struct place *place);
/* The answer is there for the client to read. place may be NULL. */
void places_answered(struct places *places, struct place *place, uint64_t now_ms);
/* The request has ended. If there are many connections, ends this one. place may be NULL. */
void places_done(struct places *places, struct place *place, uint64_t now_ms);
/* It has ended; its descriptor is still open. place may be NULL. */
void places_give(struct places *places, struct place *place);

/* Cuts the connections that are slow, and if there are many, those that are silent or do not read. */
void places_look(struct places *places, uint64_t now_ms);

#endif
