#include "status_line.h"

#include "restart/keeping.h"
#include "server.h"
#include "../base/bytes.h"

#include <stdio.h>

static const char *plural(uint64_t count)
{
	return count == 1 ? "" : "s";
}

void status_line(const void *data, char line[NOTIFY_LINE_BYTES])
{
	const struct server *server = data;
	const struct registry_counts counts = registry_counts(server->ledger.registry);
	const struct error *locked = keeping_locked(server->keeping);
	uint64_t grace = keeping_grace_ms(server->keeping);
	char bytes[BYTES_TEXT];

	if (locked) {
		snprintf(line, NOTIFY_LINE_BYTES, "%.400s", locked->message);
		return;
	}
	snprintf(line, NOTIFY_LINE_BYTES, "%s%llu version%s of %s, %llu lease%s, %llu client%s%s",
		 server->net.stopping    ? "stopping: "
		 : server->work.draining ? "draining: "
					 : "",
		 (unsigned long long)counts.versions, plural(counts.versions),
		 bytes_format(counts.bytes, bytes), (unsigned long long)counts.leases, plural(counts.leases),
		 (unsigned long long)server->net.session_count, plural(server->net.session_count),
		 grace ? "; waiting for clients of the last gpuwmd" : "");
}
