/* Who may take part in a publish. */
#ifndef GPUWM_DAEMON_RIGHTS_H
#define GPUWM_DAEMON_RIGHTS_H

#include <stdbool.h>

struct session;
struct version;

/* Returns whether the peer may take part in the publish that makes, or made, this version. Operators may; so may the user
 * who began the publish (unless as an operator), and the users and groups that its first publish_begin named. A loader
 * may if the version is its own job's. For everybody else the publish's id reads as unknown. */
bool may_take_part(const struct session *session, const struct version *version);

#endif
