/* Whether the devices of a load are large enough for a version that a peer offers. The sums of a version take memory in proportion
 * to the sizes that the peer told, so peer_offer.c asks for sums only after this check. */
#ifndef GPUWM_LOADER_PEER_ROOM_H
#define GPUWM_LOADER_PEER_ROOM_H

#include "peer_offer.h"

/* Compares the sizes of the offer's parts with all the memory of the devices where they are to lie, whoever uses it now. Needs
 * neither index nor sums. `peer` is for messages. Returns 0.
 *
 * Fails with
 *   -EINVAL  The version has several ranks, and there are neither as many devices nor one.
 *   -ENOSPC  A device is smaller than what is to lie on it.
 *   and as device_total */
int peer_room_check(const struct job *job, const struct peer_offer *offer, const char *peer,
		    struct error *error);

#endif
