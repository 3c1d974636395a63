/* gpuwmd, as an observer sees it: events say that something has changed, then `list` and `clients` say what there is. */
#ifndef GPUWM_FOLLOW_SOURCE_H
#define GPUWM_FOLLOW_SOURCE_H

#include "trouble.h"

#include <gpuwm/client.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* How long a look waits for a gpuwmd that is away. The next check tries again, and HAProxy is to be watched meanwhile. */
#define SOURCE_WAIT_MS 100

struct source {
	const char *socket; /* NULL: the usual one */
	struct gpuwm_client *client; /* NULL: gpuwmd was not there yet */
	struct gpuwm_events *events; /* NULL: the subscription is to be opened */
	char instance[33]; /* of the gpuwmd that told what there is; "": none has */
	struct trouble trouble;
};

/* What gpuwmd told. */
struct look {
	json_t *list, *clients;
	bool is_other; /* another gpuwmd than last time told it, or it is the first time */
	uint64_t uptime_ms; /* of another gpuwmd: how long it runs */
};

/* Asks gpuwmd. Returns 0 and sets *ret, which the caller frees with look_clear. Fails with a negative code, and logs why. */
int source_look(struct source *source, struct look *ret);
void look_clear(struct look *look);

/* Returns the descriptor to poll for POLLIN; -1: there is none. */
int source_fd(const struct source *source);
/* The descriptor is ready. Returns whether source_look has something new to tell. */
bool source_heard(struct source *source);

void source_close(struct source *source);

#endif
