/* A transport that only tests have: between wires of this process, which copy from each other's memory. */
#ifndef GPUWM_TESTS_PEER_WIRE_LOCAL_H
#define GPUWM_TESTS_PEER_WIRE_LOCAL_H

#include "peer/wire.h"

extern const struct wire_ops wire_local;

#endif
