/* The connection to gpuwmd: questions and events. One thread uses it. */
#ifndef GPUWM_EXPORTER_GPUWMD_H
#define GPUWM_EXPORTER_GPUWMD_H

#include "snapshot.h"
#include "timeline.h"

#include <gpuwm/client.h>

/* The last answer to a question, and until when it is used again. */
struct recalled {
	json_t *answer; /* NULL: none, or refused */
	uint64_t until_us; /* of clock_us */
};

struct gpuwmd {
	const char *socket; /* NULL: the usual one */
	struct tally *tally;
	struct gpuwm_client *client; /* NULL: not connected */
	struct gpuwm_events *events; /* NULL: none */
	char ledger[33]; /* whose events `timeline` has */
	uint64_t seq; /* of the last event */
	uint64_t seen_ms; /* as in struct snapshot */
	struct timeline timeline;
	struct recalled recalled[QUESTIONS];
	int told; /* the code of the last failure that was logged; 0: connected */
};

void gpuwmd_begin(struct gpuwmd *gpuwmd, const char *socket, struct tally *tally);
void gpuwmd_end(struct gpuwmd *gpuwmd);

/* Connects unless there is a connection. Returns 0 or a negative errno; gpuwm_error() says why. */
int gpuwmd_connect(struct gpuwmd *gpuwmd);

/* Takes what events have come. */
void gpuwmd_listen(struct gpuwmd *gpuwmd);

/* Asks everything. Returns a snapshot, which tells in `why` if gpuwmd did not answer. NULL: out of
 * memory. */
struct snapshot *gpuwmd_ask(struct gpuwmd *gpuwmd);

/* When a question is asked again that was asked and answered at these times, all of clock_us. */
uint64_t gpuwmd_ask_again_us(enum question question, uint64_t began_us, uint64_t ended_us);

#endif
