/* The Host header. A web page from anywhere may send a browser to 127.0.0.1 under a name of its own
 * ("DNS rebinding"), and would then read what the exporter tells. */
#ifndef GPUWM_EXPORTER_HOST_H
#define GPUWM_EXPORTER_HOST_H

#include <stdbool.h>

/* Returns whether the header names this machine by an address of the loopback interface or "localhost",
 * with or without a port. host may be NULL: a client that sends none is no browser. */
bool host_is_loopback(const char *host);

#endif
