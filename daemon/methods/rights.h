/* Who may take part in a publish. */
#ifndef GPUWM_DAEMON_RIGHTS_H
#define GPUWM_DAEMON_RIGHTS_H

#include <stdbool.h>

struct session;
struct version;

/* Returns whether the peer may take part in the publish that makes, or made, this version. Operators may; so may the user
 * who began the publish (unless as an operator), and the users and groups that its first publish_begin named. A loader
 * may if its own job makes the version. All others get the same error as for a publish that does not exist. */
bool may_take_part(const struct session *session, const struct version *version);

#endif
