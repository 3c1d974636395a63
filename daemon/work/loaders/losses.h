/* GPUs that are lost, and that come back. gpuwmd calls no driver: its loaders find out (loader/devices/loss.h) and report it. */
#ifndef GPUWM_DAEMON_LOSSES_H
#define GPUWM_DAEMON_LOSSES_H

#include "../../../base/errors.h"

struct device;
struct message_writer;
struct work;

/* Call when a loader has found that the device is lost. Taints all versions that have a part there, fails all publishes that
 * make one there, ends all regions there, and sends an event. The device takes no loads and publishes until losses_end. Jobs on the device end
 * before the loop sleeps. Does nothing if the loss is known. */
void losses_note(struct work *work, struct device *device, const struct error *why);
/* Call when a process that began after the loss has written and read memory of the device: the device takes loads and
 * publishes again. Versions that were lost with it stay tainted. */
void losses_end(struct work *work, struct device *device);
/* Ends jobs on lost devices, and replaces loaders that began before a device came back. Call it before the loop sleeps. */
void losses_settle(struct work *work);
#endif
