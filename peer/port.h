/* A port at which other nodes connect. */
#ifndef GPUWM_PEER_PORT_H
#define GPUWM_PEER_PORT_H

#include "../base/errors.h"

#include <stdbool.h>

/* Listens at "ADDRESS:PORT", as `listen` in [peers] has it; any_port: at that address, and at a port that the kernel chooses. Returns the
 * descriptor, which does not block, and its port. Fails with -errno. */
int port_open(const char *address, bool any_port, unsigned *ret_port, struct error *error);

#endif
