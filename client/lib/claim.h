/* Who builds a version that is not there: one, and the others wait. */
#ifndef GPUWM_LIB_CLAIM_H
#define GPUWM_LIB_CLAIM_H

#include "client.h"

/* Gives up all claims of a client that is closed: its connection may go on. */
void claims_give_up(struct gpuwm_client *client);

#endif
