#include "journal.h"

#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* An audit line has 2 KiB at most. A datagram may have 200 KiB. */
#define ENTRY_BYTES_MAX 8192

/* The process's only one. It is never connected, so it survives journald's restarts. -1: none yet. */
static int journal_sock = -1;

bool journal_send(const char *socket_path, const struct journal_field *fields, size_t count)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	char entry[ENTRY_BYTES_MAX];
	size_t used = 0;

	for (size_t i = 0; i < count; i++) {
		if (!fields[i].value)
			continue;
		used += (size_t)snprintf(entry + used, sizeof(entry) - used, "%s=%s\n", fields[i].name,
					 fields[i].value);
		if (used >= sizeof(entry))
			return false;
	}
	if (journal_sock < 0)
		journal_sock = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (journal_sock < 0)
		return false;
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", socket_path);
	return sendto(journal_sock, entry, used, MSG_DONTWAIT | MSG_NOSIGNAL, (const struct sockaddr *)&address,
		      sizeof(address)) == (ssize_t)used;
}
