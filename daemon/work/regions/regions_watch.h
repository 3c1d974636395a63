/* The pidfds of the processes that use regions. */
#ifndef GPUWM_DAEMON_REGIONS_WATCH_H
#define GPUWM_DAEMON_REGIONS_WATCH_H

#include "../../../base/errors.h"

struct region_user;
struct work;

/* Begins with no watches, and ends when all of them have ended: makes and closes a handle of the loop. */
void region_watches_init(struct work *work);
void region_watches_end(struct work *work);

/* Called on the loop, once: the process has exited. If many processes exit at once, the calls spread over turns of the loop. */
typedef void region_gone_fn(struct work *work, struct region_user *user);
/* Watches the user's pidfd. Fails with -EPERM if the descriptor is no pidfd, and with -ENOMEM. */
int region_watch(struct work *work, struct region_user *user, region_gone_fn *gone, struct error *error);
/* Ends that, also if the process has exited and its call waits. The pidfd may be closed afterwards. A second call does nothing. */
void region_unwatch(struct region_user *user);

#endif
