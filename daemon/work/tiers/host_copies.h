/* Host copies. A version never changes: what it had in host memory before it came onto its devices is still right. So it stays there,
 * as the version's host copy, and the next demotion to host memory only closes the memory of the devices. A host copy costs the budget
 * of `host`, and no user. Some rules have gpuwmd make it beforehand (host_copies_make.c). It goes as soon as somebody needs the room: first those of the versions that came onto their devices first. */
#ifndef GPUWM_DAEMON_HOST_COPIES_H
#define GPUWM_DAEMON_HOST_COPIES_H

#include <stdbool.h>
#include <stdint.h>

struct device;
struct version;
struct work;

/* Returns whether a version that comes from host memory onto its devices keeps its memory there (`host_copy` of its section). */
bool host_copies_keep(const struct work *work, const struct version *version);
/* Returns the bytes of the device that host copies have and that nobody else needs. */
uint64_t host_copies_bytes(const struct work *work, const struct device *device);
/* Drops host copies until so many bytes fit beside what is charged to the device and not being freed, or none is left that may go. */
void host_copies_drop_for(struct work *work, const struct device *device, uint64_t bytes);
/* The same if that makes the bytes fit. Returns whether they will fit when the memory that is being freed has gone; false if none is. */
bool host_copies_give_way(struct work *work, const struct device *device, uint64_t bytes);
/* Returns whether so many bytes of host memory, and so many descriptors of the fd store, are there beside what host copies leave to others. */
bool host_copies_fit(const struct work *work, uint64_t bytes, uint64_t fds);
/* Drops the version's host copy. Returns false if there is no memory for that; else true, also if the version has none. */
bool host_copy_drop(struct work *work, struct version *version);
/* Drops what should not be there any more (LATER_HOST_COPIES), and keeps room in the budget of host and in the fd store. The loop
 * calls it before it sleeps. */
void host_copies_settle(struct work *work);

#endif
