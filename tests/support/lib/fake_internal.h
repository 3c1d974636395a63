/* What the fake gpuwmd's two files share: fake.c has its connections and its life, fake_answers.c what it answers. */
#ifndef GPUWM_TESTS_LIB_FAKE_INTERNAL_H
#define GPUWM_TESTS_LIB_FAKE_INTERNAL_H

#include "fake.h"

/* Answers a request of this peer as the protocol says, or as the test has said. */
void fake_request(struct fake *fake, nfds_t peer, const struct message *m, struct packet *packet);

/* The peer holds `by` leases more. */
void fake_lease(struct fake *fake, nfds_t peer, int by);

#endif
