/* status, ps, clients, ping: what gpuwmd tells about itself. */
#include "../../base/bytes.h"
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "version.h"
#include "line.h"
#include "output.h"
#include "runner.h"
#include "table.h"

#include <stdio.h>
#include <string.h>

static bool verbose;
static const struct option_row status_options[] = {
	{"verbose", "the limits, too", .into = &verbose, .letter = 'v'},
	ROW_WATCH,
	{0},
};

/* ---- status ------------------------------------------------------------ */

/* Whether versions outlive this gpuwmd, and what it found of the one before. */
static void status_restarts(const json_t *status)
{
	const json_t *locked = json_object_get(status, "locked");
	unsigned long long lost = answer_number(status, "lost"), grace = answer_number(status, "grace_ms");
	struct line line = {0};
	char time[SHORT_TEXT];

	if (locked) {
		answer_error_print(status, "locked", "LOCKED");
		return;
	}
	if (!json_is_true(json_object_get(status, "kept"))) {
		say("restarts: versions end with this gpuwmd: no supervisor keeps its descriptors");
		return;
	}
	line_add(&line,
		 "restarts: versions outlive gpuwmd; start %llu with these weights; versions taken over: %llu",
		 (unsigned long long)answer_number(status, "epoch"),
		 (unsigned long long)answer_number(status, "adopted"));
	if (lost > 0)
		line_add(&line, ", LOST: %llu", lost);
	if (answer_number(status, "unread") > 0)
		line_add(&line, ", RECORDS NOT READ: %llu",
			 (unsigned long long)answer_number(status, "unread"));
	if (grace > 0)
		line_add(&line, "; nothing is freed for %s more", time_text(grace, time));
	line_say(&line);
}

/* What a reboot would find, and what this gpuwmd found. */
static void status_tiers(const json_t *status)
{
	const json_t *tiers = json_object_get(status, "tiers");
	const unsigned long long to_restore = answer_number(tiers, "to_restore");
	struct line line = {0};

	if (!tiers || !json_object_get(tiers, "folder"))
		return;
	if (json_object_get(tiers, "error"))
		answer_error_print(tiers, "error", "NOT DESCRIBED");
	line_add(&line, "descriptions: %llu version%s in %s",
		 (unsigned long long)answer_number(tiers, "described"),
		 answer_number(tiers, "described") == 1 ? "" : "s", answer_text(tiers, "folder"));
	if (to_restore > 0)
		line_add(&line, "; restored %llu of %llu", (unsigned long long)answer_number(tiers, "restored"),
			 to_restore);
	if (answer_number(tiers, "not_restored") > 0)
		line_add(&line, ", NOT RESTORED: %llu (show tells why)",
			 (unsigned long long)answer_number(tiers, "not_restored"));
	line_say(&line);
}

/* The memory of versions, and what is held besides. */
static void status_memory(const json_t *status)
{
	const uint64_t shared = answer_number(status, "shared_bytes");
	const unsigned long long revoked = answer_number(status, "revoked"),
				 copies = answer_number(status, "copies");
	char size[SHORT_TEXT];
	struct line line = {0};

	line_add(&line, "holds %s in segments", size_text(answer_number(status, "bytes"), size));
	if (shared > 0)
		line_add(&line, ", of which several versions share %s", size_text(shared, size));
	line_add(&line, "; its own memory: %s", size_text(answer_number(status, "rss"), size));
	line_say(&line);
	if (revoked > 0)
		say("%llu revoked lease%s may still be mapped; freed versions still take %s (ps lists the processes)",
		    revoked, revoked == 1 ? "" : "s", size_text(answer_number(status, "still_mapped"), size));
	/* For programs that can't take descriptors. */
	if (copies > 0)
		say("%llu cop%s by CUDA IPC take%s %s, each with a process that holds it (ls names them)",
		    copies, copies == 1 ? "y" : "ies", copies == 1 ? "s" : "",
		    size_text(answer_number(status, "copy_bytes"), size));
}

static void keeping_say(const json_t *loader)
{
	struct line line = {0};
	const json_t *uid = json_object_get(loader, "uid"), *context;
	char size[SHORT_TEXT];
	size_t i;

	line_add(&line, "loader %llu keeps for the next ", (unsigned long long)answer_number(loader, "pid"));
	if (!json_is_true(json_object_get(loader, "checks")))
		line_add(&line, "load:");
	else if (uid)
		line_add(&line, "check of user %lld:", (long long)json_integer_value(uid));
	else
		line_add(&line, "check:");
	json_array_foreach(json_object_get(loader, "contexts"), i, context) {
		line_add(&line, "%s a CUDA context on %s (%s)", i ? "," : "", answer_text(context, "device"),
			 size_text(answer_number(context, "bytes"), size));
	}
	if (!json_is_true(json_object_get(loader, "ready")))
		line_add(&line, "; the loader is making them");
	else if (json_object_get(loader, "left_ms"))
		line_add(&line, "; for %llu s more",
			 (unsigned long long)answer_number(loader, "left_ms") / 1000);
	else
		line_add(&line, "; until the memory is needed");
	line_say(&line);
}

static void status_counts(const json_t *status)
{
	static const char *const counts[] = {"versions",  "nameless", "aliases",      "pins",
					     "sessions",  "leases",   "segments",     "fds",
					     "publishes", "claims",   "jobs_running", "loaders"};
	const unsigned long long demoted = answer_number(status, "demoted");
	struct line line = {0};

	for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
		line_add(&line, "%s%s %llu", i ? ", " : "", counts[i],
			 (unsigned long long)answer_number(status, counts[i]));
		if (i == 0 && demoted > 0)
			line_add(&line, " (%llu demoted)", demoted);
	}
	line_say(&line);
}

/* The loader that stands by, and those that hold memory of GPUs for the next load, or for a user's next check. */
static void status_loaders(const json_t *status)
{
	const bool ready = json_is_true(json_object_get(status, "standby"));
	const uint64_t pid = answer_number(status, "standby_pid");
	const json_t *loader;
	size_t i;

	/* The pid is for people who look at its groups and mounts: they asked for more (-v). */
	if (ready && pid > 0 && json_object_get(status, "limits"))
		say("standby loader: ready, pid %llu", (unsigned long long)pid);
	else
		say("standby loader: %s", ready ? "ready" : "none");
	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		keeping_say(loader);
	}
}

/* Each root, with the error of the loader that tried to use it. */
static void status_roots(const json_t *status)
{
	const json_t *root, *judged;
	size_t i;

	json_array_foreach(json_object_get(status, "roots"), i, root) {
		judged = answer_find(json_object_get(status, "roots_judged"), "roots", "root",
				     json_string_value(root));
		say("loads from %s", json_string_value(root));
		if (json_object_get(judged, "error"))
			answer_error_print(judged, "error", "but loads fail");
	}
}

/* Who makes room first. */
static void status_leaves_next(const json_t *status)
{
	const json_t *each;
	size_t i;

	json_array_foreach(json_object_get(status, "leaves_next"), i, each) {
		char bytes[BYTES_TEXT];

		say("leaves %s next: %s@%s, %s, to %s", answer_text(each, "device"), answer_text(each, "model"),
		    answer_text(each, "tag"), bytes_format(answer_number(each, "bytes"), bytes),
		    answer_text(each, "to"));
	}
}

static const char *device_state(const json_t *device, const char *key, char text[CELL_TEXT])
{
	(void)text;
	return json_object_get(device, key) ? "LOST" : "ok";
}

static int status_print(const json_t *status)
{
	static const struct column columns[] = {
		{"DEVICE", cell_device, "device"},
		{"?KIND", cell_text, "kind"},
		{"!STATE", device_state, "lost"},
		{">TOTAL", cell_size, "total"},
		{">FREE", cell_size_known, "free"},
		{">BUDGET", cell_size, "budget"},
		{">USED", cell_size, "used"},
		{"?>ROOM", cell_size, "rooms"},
		{"?>STILL MAPPED", cell_size, "still_mapped"},
		{"NAME", cell_text, "name"},
		{0},
	};
	json_t *limits = json_object_get(status, "limits"), *value;
	const char *key, *separator = "limits: ";
	const json_t *devices = json_object_get(status, "devices"), *device;
	struct line line = {0};
	char release[RELEASE_TEXT], name[80];
	size_t i;

	say("gpuwmd %s, pid %llu, up %llu s%s", answer_text(status, "server"),
	    (unsigned long long)answer_number(status, "pid"),
	    (unsigned long long)answer_number(status, "uptime_ms") / 1000,
	    json_is_true(json_object_get(status, "draining")) ? ", DRAINING" : "");
	if (release_differs(status, release))
		say("%s; gpuwmctl version says what to do", release);
	say("instance %s", answer_text(status, "instance"));
	status_restarts(status);
	status_tiers(status);
	status_memory(status);
	status_counts(status);
	status_loaders(status);
	status_roots(status);
	status_leaves_next(status);
	json_object_foreach(limits, key, value) {
		line_add(&line, "%s%s %lld", separator, key, (long long)json_integer_value(value));
		separator = ", ";
	}
	if (limits)
		line_say(&line);
	putchar('\n');
	json_array_foreach(devices, i, device) {
		snprintf(name, sizeof(name), "%.60s is LOST", answer_text(device, "device"));
		if (json_object_get(device, "lost"))
			answer_error_print(device, "lost", name);
	}
	return table_of(columns, devices);
}

static int status_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {status_print, cell_text, "device", "devices"};

	json_t *status;
	int code = answer_get(client, "status", NULL, &status);

	if (code != EXIT_DONE)
		return code;
	(void)arguments;
	/* People who ask how gpuwmd is need no 22 numbers; programs take what they know. */
	if (!verbose && !output_is_data())
		json_object_del(status, "limits");
	return result_show(status, &view);
}

const struct command command_status = {
	.name = "status",
	.summary = "show what gpuwmd holds, its devices and its limits",
	.options = status_options,
	.example = "gpuwmctl status\n"
		   "gpuwmctl status --verbose",
	.run = status_run,
};

/* ---- ps, clients ------------------------------------------------------- */

static const struct option_row watch_options[] = {ROW_WATCH, {0}};

static int ps_print(const json_t *result)
{
	const json_t *leases = json_object_get(result, "leases");

	if (json_array_size(leases) > 0)
		return leases_print(leases);
	say("no leases");
	return EXIT_DONE;
}

static int ps_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {ps_print, cell_number, "lease", "leases"};
	json_t *leases;
	int code = leases_query(client, NULL, &leases);

	(void)arguments;
	return code == EXIT_DONE ? result_show(json_pack("{s:o}", "leases", leases), &view) : code;
}

const struct command command_ps = {
	.name = "ps",
	.also = "leases",
	.summary = "list leases: which process holds which version",
	.options = watch_options,
	.example = "gpuwmctl ps",
	.run = ps_run,
};

static const char *session_socket(const json_t *session, const char *key, char text[CELL_TEXT])
{
	return json_is_true(json_object_get(session, "ended")) ? "(ended)" : cell_text(session, key, text);
}

/* Observers are not told of publishes. */
static const char *session_publishes(const json_t *session, const char *key, char text[CELL_TEXT])
{
	return json_object_get(session, key) ? cell_count(session, key, text) : "";
}

static int sessions_print(const json_t *clients)
{
	static const struct column session_columns[] = {
		{">SESSION", cell_number, "session"},
		{">PID", cell_number, "pid"},
		{">UID", cell_number, "uid"},
		{"?SOCKET", session_socket, "socket"},
		{"NAME", cell_text, "name"},
		{">LEASES", cell_count, "leases"},
		{"?>PUBLISHES", session_publishes, "publishes"},
		{"?>CLAIMS", cell_count, "claims"},
		{"?>REQUESTS", cell_number, "requests"},
		{">AGE", cell_age, "since_ms"},
		{"COMMAND", cell_text, "command"},
		{0},
	};
	static const struct column user_columns[] = {
		{">UID", cell_number, "uid"},
		{">SESSIONS", cell_number, "sessions"},
		{">LEASES", cell_number, "leases"},
		{"?>PUBLISHES", cell_number, "publishes"},
		{"?>CLAIMS", cell_number, "claims"},
		{">VERSIONS", cell_number, "versions"},
		{"?>NAMELESS", cell_number, "nameless"},
		{"+>COPIES", cell_number, "copies"},
		{">MEMORY", cell_size, "bytes"},
		{"?>FDS", cell_number, "fds"},
		{"?>INDICES", cell_size, "index_bytes"},
		{0},
	};
	int code = table_of(session_columns, json_object_get(clients, "clients"));

	putchar('\n');
	return code == EXIT_DONE ? table_of(user_columns, json_object_get(clients, "users")) : code;
}

static int clients_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {sessions_print, cell_number, "pid", "clients"};

	(void)arguments;
	return answer_show(client, "clients", NULL, &view);
}

const struct command command_clients = {
	.name = "clients",
	.summary = "list sessions: who is connected",
	.options = watch_options,
	.example = "gpuwmctl clients",
	.run = clients_run,
};

/* ---- ping -------------------------------------------------------------- */

static int ping_print(const json_t *result)
{
	say("gpuwmd %s answered in %.3f ms", answer_text(result, "instance"),
	    (double)answer_number(result, "ns") / 1e6);
	return EXIT_DONE;
}

static int ping_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {ping_print, cell_text, "instance", NULL};
	enum exit_code code = EXIT_DONE;
	json_t *status;
	uint64_t ns;

	(void)arguments;
	if (gpuwm_ping(client, &ns) < 0 || answer_ask(client, "status", NULL, &status) < 0)
		return exit_with_error();
	/* It answers, but serves nobody. */
	if (json_object_get(status, "locked"))
		code = answer_error_tell(json_object_get(status, "locked"), EXIT_FAILED, "");
	json_decref(status);
	if (code != EXIT_DONE)
		return code;
	return result_show(json_pack("{s:s, s:I}", "instance", gpuwm_instance(client), "ns", (json_int_t)ns),
			   &view);
}

const struct command command_ping = {
	.name = "ping",
	.summary = "measure one round trip to gpuwmd",
	.example = "gpuwmctl ping",
	.run = ping_run,
};
