/* HAProxy: its slots become what the fleets of the routes are. */
#ifndef GPUWM_FOLLOW_BALANCER_H
#define GPUWM_FOLLOW_BALANCER_H

#include "route.h"

struct balancer {
	const char *socket; /* NULL: there is no HAProxy */
	const char *state_file; /* NULL: none */
	bool is_written; /* the file has what HAProxy has now */
	bool is_silent; /* HAProxy did not answer in time: it is asked no more until this is false */
	struct trouble trouble, file_trouble;
};

/* The next calls ask HAProxy again, even if it did not answer in time before. One that hangs so costs one wait, not one for each
 * route. */
void balancer_begin(struct balancer *balancer);

/* Takes the servers that the route's backend has into its fleet, once: whoever got requests before gpuwm-follow was started is not
 * removed before gpuwmd has had keep_until_ms to tell of it. If HAProxy can't be asked, a later call does it. */
void balancer_adopt(struct balancer *balancer, struct route *route, uint64_t keep_until_ms);

/* Compares the backend's slots with the fleet, and changes what differs. Logs what can't be done; a later call tries again. */
void balancer_apply(struct balancer *balancer, struct route *route);

/* Writes the state file if HAProxy has changed since the last time. */
void balancer_write(struct balancer *balancer);

#endif
