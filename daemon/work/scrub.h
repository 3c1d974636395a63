/* Scrubbing: every now and then all ready versions are verified, one part at a time and at a pace that
 * workers do not feel. It comes last: a part is begun only where a loader is to spare, and given up, to be begun
 * again, where another job needs the loader or the room for a context. Between parts it holds nothing. */
#ifndef GPUWM_DAEMON_SCRUB_H
#define GPUWM_DAEMON_SCRUB_H

#include "../../proto/errors.h"

#include <stdbool.h>
#include <stdint.h>

struct job;
struct message_writer;
struct scrub;
struct work;

/* NULL: out of memory. */
struct scrub *scrub_new(struct work *work);
/* Its timer closes on its own. NULL is fine, here and below, where it means that there is none. Always NULL. */
struct scrub *scrub_free(struct scrub *scrub);
/* The interval of the configuration, from now on where it is another one; 0: no more passes. */
void scrub_configure(struct scrub *scrub);
/* Call once the ledger of an earlier gpuwmd was taken over. The interval counts from scrub_from_ms of the ledger, so that
 * restarts do not put a pass off: from the beginning of the last pass that came to its end, or from the first start. */
void scrub_begin(struct scrub *scrub);

/* For the pool, which has a loader to spare: a job for the next part, queued, with its contexts charged. NULL:
 * there is nothing to read, or nothing that can be read now. */
struct job *scrub_next(struct scrub *scrub);
/* Whether a pass has parts to read that it could not begin. */
bool scrub_waits(const struct scrub *scrub);
/* Others need the loader: the part is given up. */
void scrub_give_way(struct scrub *scrub);
/* scrub: {…} of the status. */
void scrub_put(struct message_writer *w, const struct scrub *scrub);

#endif
