/* Log lines with fields, which journald stores beside the text. libsystemd's own call may wait for journald; these functions never do. */
#ifndef GPUWM_DAEMON_JOURNAL_H
#define GPUWM_DAEMON_JOURNAL_H

#include <stdbool.h>
#include <stddef.h>

#define JOURNAL_SOCKET "/run/systemd/journal/socket"

/* One line each: neither has a newline in it. */
struct journal_field {
	const char *name, *value; /* value NULL: the field is left out */
};

/* Sends a line with these fields to journald at this socket. Returns false if journald did not take it: it is not there, it is busy, or
 * the kernel has no room. */
bool journal_send(const char *socket_path, const struct journal_field *fields, size_t count);

#endif
