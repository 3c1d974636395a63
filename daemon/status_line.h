/* How gpuwmd is, in one line for people: the service manager shows it. */
#ifndef GPUWM_DAEMON_STATUS_LINE_H
#define GPUWM_DAEMON_STATUS_LINE_H

#include "base/notify.h"

/* A notify_describe_fn, whose data is the server. */
void status_line(const void *server, char line[NOTIFY_LINE_BYTES]);

#endif
