/* What the methods of regions share. */
#ifndef GPUWM_DAEMON_METHODS_REGION_H
#define GPUWM_DAEMON_METHODS_REGION_H

#include "methods.h"

struct region_user;

/* Sets *ret to the request's process, as region_user_add takes it, with a new pidfd, which is the caller's. Fails with -ENOTSUP if the
 * kernel gives no pidfds, -EMFILE, -ENFILE, and -ECANCELED if the process is gone. */
int region_user_of(const struct request *request, struct region_user *ret, struct error *error);
/* Makes the waiter that answers the request when this user is here. Fails with -EDQUOT and -ENOMEM. */
int region_await(const struct request *request, const struct region_user *user, struct error *error);

/* The request has the `use` of a user that there is: a process sends a request again whose answer was lost, and gets the same answer.
 * is_same: the request is about the user's region. A failure changes nothing. Fails with -EINVAL (it is another process, or not
 * is_same), -EOWNERDEAD or -ESHUTDOWN (the region has ended), -EMFILE, -ENFILE, -EDQUOT and -ENOMEM. */
int region_again(struct request *request, struct region_user *user, bool is_same, struct error *error);

/* Sets the error of a region that is not there, or that the session does not see. Returns -ENOENT. */
int region_unknown(const char *reference, struct error *error);

#endif
