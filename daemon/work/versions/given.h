/* Memory that gpuwmd gives: to the publisher of a small version without a name on host, so that no other process need check
 * what the publisher made. The publisher fills it and seals it. At the commit gpuwmd looks at seals and sizes, and reads nothing.
 * So whoever maps such a version validates its index. */
#ifndef GPUWM_DAEMON_GIVEN_H
#define GPUWM_DAEMON_GIVEN_H

#include "../../ledger/publish.h"

/* Makes both, empty. Fails with -errno. */
int given_make(struct given *ret, struct error *error);

/* Lists them as what a check found; the caller says layout, content and tensors. They stay the caller's. Fails with -EBADMSG if one of
 * them can still be changed, or the segment is empty, or the index is empty or too large. */
int given_look(const struct given *given, struct publish_checked *ret, struct error *error);

#endif
