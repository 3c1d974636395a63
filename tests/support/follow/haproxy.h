/* A HAProxy for tests: a thread that answers the runtime API of one backend, "b", with slots w1 to w4. */
#ifndef GPUWM_TESTS_FOLLOW_HAPROXY_H
#define GPUWM_TESTS_FOLLOW_HAPROXY_H

#include "follow/slots.h"

#include <criterion/criterion.h>
#include <pthread.h>

#define FAKE_SLOTS 4

struct fake_haproxy {
	char folder[64], path[96];
	char address[32]; /* of a TCP socket that it listens on too */
	int listeners[2];
	int stop[2];
	pthread_t thread;
	struct slot slots[FAKE_SLOTS];
	unsigned commands; /* that change something */
	/* Set by tests before the call. */
	const char *says; /* to everything; NULL: what HAProxy says */
	bool hangs; /* it takes a connection and says nothing */
	bool trickles; /* its answer comes byte by byte, and has no end */
	bool deaf; /* it takes changes, and makes none */
	size_t floods; /* so many bytes come as the answer */
};

struct fake_haproxy *fake_haproxy_start(void);
void fake_haproxy_stop(struct fake_haproxy *fake);
/* "w1 ready 10.0.0.1:80" of each slot that is not in maintenance, in one line. */
const char *fake_haproxy_slots(const struct fake_haproxy *fake);

#endif
