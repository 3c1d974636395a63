/* GPUs that are lost, and come back. gpuwmd asks no GPU: it goes by what its loaders found (loader/loss.h says how). */
#ifndef GPUWM_DAEMON_LOSSES_H
#define GPUWM_DAEMON_LOSSES_H

#include "../proto/errors.h"

struct device;
struct message_writer;
struct server;

/* A loader found that the device is lost: what lies there is tainted, what is made there fails, and subscribers are told. The
 * device takes nothing more until losses_end. Jobs that are at it end before the loop sleeps. Again: nothing. */
void losses_note(struct server *server, struct device *device, const struct error *why);
/* A process that began after the loss wrote and read memory of the device: it takes loads again. What was lost stays so. */
void losses_end(struct server *server, struct device *device);
/* Before the loop sleeps: jobs on lost devices end, loaders that saw a device only before it was lost are replaced. */
void losses_settle(struct server *server);
/* devices: [{device, lost}] for a loader: what gpuwmd knows. */
void losses_put(struct message_writer *w, const struct server *server);

#endif
