/* What gpuwmd says of itself: what a start logs, which gpuwmd this is and what it goes by, and the status. */
#include "server.h"
#include "../service/log.h"
#include "net/listener.h"
#include "restart/keeping.h"
#include "work/loaders/loader.h"
#include "../base/bytes.h"
#include "../service/manager.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The longest is of the limits. A list of roots that is longer is cut; `gpuwmctl status` has all of them. */
#define TEXT_BYTES 2048

void start_lines_begin(void)
{
	log_info("gpuwmd %s starts, pid %d, uid %u", GPUWM_VERSION, (int)getpid(), (unsigned)geteuid());
}

__attribute__((format(printf, 2, 3))) static void append(char text[TEXT_BYTES], const char *format, ...)
{
	size_t used = strlen(text);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text + used, TEXT_BYTES - used, format, arguments);
	va_end(arguments);
}

/* Without a store keeping_begin has said so. */
static void say_keeper(const struct server *server)
{
	const char *keeper = getenv(STORE_ANSWER_VARIABLE) ? "gpuwm-keeper" : "systemd's fd store";

	if (keeping_stores(server->keeping))
		log_info("kept by %s, which has room for %s descriptors: versions outlive gpuwmd", keeper,
			 getenv("FDSTORE"));
}

/* As they are now: who made them may have set other modes than the configuration has. */
static void say_sockets(const struct server *server)
{
	char path[LISTENER_PATH_BYTES];
	struct stat st;

	for (size_t i = 0; i < LISTENERS; i++) {
		const char *whose = i == 0 ? "workers" : "operators";

		if (!server->listeners[i])
			continue;
		listener_path(server->listeners[i], path);
		if (stat(path, &st) == 0)
			log_info("socket of %s: %s, mode %04o, uid %u, gid %u", whose, path,
				 (unsigned)st.st_mode & 07777, (unsigned)st.st_uid, (unsigned)st.st_gid);
		else
			log_warning("socket of %s: %s: %s", whose, path, strerror(errno));
	}
}

static void say_devices(const struct server *server)
{
	const struct error *failure = loader_pool_failure(server->work.loaders);
	const struct device_table *table = &server->ledger.devices;
	char budget[BYTES_TEXT], total[BYTES_TEXT];
	bool has_gpu = false;

	for (size_t i = 0; i < table->count; i++) {
		const struct device *device = table->devices[i];

		has_gpu |= device->kind->is_gpu;
		log_info("device %s (%s): budget %s of %s", device->id, device->name,
			 bytes_format(device->budget, budget), bytes_format(device->total, total));
	}
	if (table->count > 0 && !has_gpu)
		log_info("no GPU: gpuwm-loader found no NVIDIA driver, or no GPU that it may use "
			 "(gpuwmctl doctor says which)");
	if (table->count == 0)
		log_warning("devices: none yet%s%s", failure ? ": " : "", failure ? failure->message : "");
}

static void say_roots(const struct server *server)
{
	const struct config *config = server->config;
	char text[TEXT_BYTES] = "";

	for (size_t i = 0; i < config->root_count; i++)
		append(text, "%s%s", i ? ", " : "", config->roots[i]);
	log_info("roots of models: %s",
		 config->root_count ? text : "none, so nothing can be loaded from files");
}

static void say_limits(const struct server *server)
{
	const struct config *config = server->config;
	struct rlimit files = {0};
	char text[TEXT_BYTES] = "", bytes[BYTES_TEXT];

	getrlimit(RLIMIT_NOFILE, &files);
	append(text, "%llu connections, %llu loaders, %llu open files; of one user",
	       (unsigned long long)config->sessions, (unsigned long long)config->loaders,
	       (unsigned long long)files.rlim_cur);
	for (int kind = 0; kind < QUOTA_KINDS; kind++) {
		const uint64_t most = quota_alone(&config->quota, (enum quota_kind)kind);

		if (most == QUOTA_NONE)
			continue;
		append(text, "%s ", kind ? "," : "");
		if (quota_rows[kind].in_bytes)
			append(text, "%s %s", bytes_format(most, bytes), quota_rows[kind].noun);
		else
			append(text, "%llu %s", (unsigned long long)most, quota_rows[kind].noun);
	}
	append(text, ", %llu new connections a second", (unsigned long long)config->connects_per_second);
	log_info("limits: %s", text);
}

void start_lines_serving(const struct server *server)
{
	say_keeper(server);
	say_sockets(server);
	say_devices(server);
	say_roots(server);
	say_limits(server);
}

/* ---- the status ---- */

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
