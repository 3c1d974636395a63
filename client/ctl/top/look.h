/* What gpuwmd tells at one moment, and the connection that asks. */
#ifndef GPUWM_CTL_TOP_LOOK_H
#define GPUWM_CTL_TOP_LOOK_H

#include <gpuwm/client.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#define LOOK_SAMPLES 10 /* answers of `metrics`, one a second: figures are of the last ten seconds */

struct look {
	const char *socket; /* of --socket, or NULL */
	struct gpuwm_client *client; /* NULL: not connected */
	struct gpuwm_events *events; /* NULL: not subscribed */
	/* The last answers. clients, jobs, metrics: NULL if gpuwmd does not tell this user, or not at all. */
	json_t *status, *list, *clients, *jobs, *metrics;
	struct {
		json_t *metrics;
		int64_t at_ms;
	} samples[LOOK_SAMPLES]; /* the oldest first */
	size_t sample_count;
	char problem[512]; /* why the answers are old; "": they are not */
};

/* Asks for everything, and connects first if that is needed. Returns 0, or the error that look->problem tells; the answers are the
 * last ones then. Waits for no gpuwmd that went away. */
int look_take(struct look *look);
/* Reads the events that have come. Returns whether there was one. */
bool look_events(struct look *look);
/* The descriptor of the events; -1: there is none. */
int look_fd(const struct look *look);
void look_end(struct look *look);

/* ---- what happened between two answers of `metrics` ---- */

struct rates {
	double attaches, requests, refused; /* a second */
	double p50_us, p99_us; /* of attaches; negative: there were none */
};

/* before NULL: since gpuwmd's start, which was `seconds` ago. A `before` of another gpuwmd must not be passed. */
void rates_of(const json_t *before, const json_t *now, double seconds, struct rates *ret);
/* Whether both are of one gpuwmd. */
bool rates_fit(const json_t *before, const json_t *now);

#endif
