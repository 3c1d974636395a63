/* What a peer may do with what others have made. */
#ifndef GPUWM_DAEMON_RIGHTS_H
#define GPUWM_DAEMON_RIGHTS_H

#include <stdbool.h>

struct session;
struct version;

/* Whether the peer may take part in the publish that makes, or made, the version: operators, the user who began it
 * (if not as an operator),
 * and users and groups that the first publish_begin named. A loader only makes what its own job is to make. To
 * everybody else the publish's id names nothing. */
bool may_take_part(const struct session *session, const struct version *version);

#endif
