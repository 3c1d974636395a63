/* Claims: of the processes that want a version that is not there, one builds it, and the others wait. */
#ifndef GPUWM_LIB_CLAIM_H
#define GPUWM_LIB_CLAIM_H

#include "../request/client.h"

/* Gives up all claims of a client that is being closed, because its connection may go on. */
void claims_give_up(struct gpuwm_client *client);

#endif
