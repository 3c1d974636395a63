/* status, ps, clients, ping: what gpuwmd tells about itself. */
#include "commands.h"

#include "answer.h"
#include "cells.h"
#include "exit.h"
#include "leases.h"

#include "../../proto/utf8.h"

#include <stdio.h>

/* ---- status ------------------------------------------------------------ */

static void status_limits(const json_t *status)
{
	json_t *limits = json_object_get(status, "limits"), *value;
	const char *key, *separator = "limits: ";

	json_object_foreach(limits, key, value) {
		printf("%s%s %lld", separator, key, (long long)json_integer_value(value));
		separator = ", ";
	}
	if (json_object_size(limits) > 0)
		putchar('\n');
}

/* Whether versions outlive this gpuwmd, and what it found of the one before. */
static void status_restarts(const json_t *status)
{
	const json_t *locked = json_object_get(status, "locked");
	unsigned long long lost = answer_number(status, "lost"), grace = answer_number(status, "grace_ms");

	if (locked) {
		answer_error_print(status, "locked", "LOCKED");
		return;
	}
	if (!json_is_true(json_object_get(status, "kept"))) {
		puts("restarts: versions end with this gpuwmd: no supervisor keeps its descriptors");
		return;
	}
	printf("restarts: versions outlive gpuwmd; start %llu with these weights; versions taken over: %llu",
	       (unsigned long long)answer_number(status, "epoch"),
	       (unsigned long long)answer_number(status, "adopted"));
	if (lost > 0)
		printf(", LOST: %llu", lost);
	if (grace > 0)
		printf("; nothing is freed for %llu ms more", grace);
	putchar('\n');
}

/* Memory that was given up and is not there again. */
static void status_revoked(const json_t *status)
{
	unsigned long long revoked = answer_number(status, "revoked");
	char size[SHORT_TEXT];

	if (revoked > 0)
		printf("%llu revoked lease%s may still be mapped; freed versions still take %s (ps lists the processes)\n",
		       revoked, revoked == 1 ? "" : "s",
		       size_text(answer_number(status, "still_mapped"), size));
}

/* "loader 123 keeps for the next load:" */
static void print_keeper(const json_t *loader)
{
	const json_t *uid = json_object_get(loader, "uid");

	printf("loader %llu keeps for the next ", (unsigned long long)answer_number(loader, "pid"));
	if (!json_is_true(json_object_get(loader, "checks")))
		printf("load:");
	else if (uid)
		printf("check of user %lld:", (long long)json_integer_value(uid));
	else
		printf("check:");
}

/* Memory of GPUs that loaders hold for the next load, or for a user's next check. */
static void status_keeping(const json_t *status)
{
	const json_t *loader, *context;
	char size[SHORT_TEXT];
	size_t i, j;

	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		print_keeper(loader);
		json_array_foreach(json_object_get(loader, "contexts"), j, context) {
			printf("%s a CUDA context on %s (%s)", j ? "," : "", answer_text(context, "device"),
			       size_text(answer_number(context, "bytes"), size));
		}
		if (!json_is_true(json_object_get(loader, "ready")))
			puts("; the loader is making them");
		else if (json_object_get(loader, "left_ms"))
			printf("; for %llu s more\n",
			       (unsigned long long)answer_number(loader, "left_ms") / 1000);
		else
			puts("; until the memory is needed");
	}
}

/* ", of which several versions share 1.0 GiB", or nothing. */
static const char *shared_text(const json_t *status, char ret_text[SHORT_TEXT + 40])
{
	uint64_t bytes = answer_number(status, "shared_bytes");
	char size[SHORT_TEXT];

	ret_text[0] = '\0';
	if (bytes > 0)
		snprintf(ret_text, SHORT_TEXT + 40, ", of which several versions share %s",
			 size_text(bytes, size));
	return ret_text;
}

static void status_summary(const json_t *status)
{
	static const char *const counts[] = {"versions",  "nameless", "aliases",      "pins",
					     "sessions",  "leases",   "segments",     "fds",
					     "publishes", "claims",   "jobs_running", "loaders"};
	char size[SHORT_TEXT], rss[SHORT_TEXT], shared[SHORT_TEXT + 40];
	size_t i;
	const json_t *root;

	printf("gpuwmd %s, pid %llu, up %llu s%s\n", answer_text(status, "server"),
	       (unsigned long long)answer_number(status, "pid"),
	       (unsigned long long)answer_number(status, "uptime_ms") / 1000,
	       json_is_true(json_object_get(status, "draining")) ? ", DRAINING" : "");
	printf("instance %s\n", answer_text(status, "instance"));
	status_restarts(status);
	printf("holds %s in segments%s; its own memory: %s\n", size_text(answer_number(status, "bytes"), size),
	       shared_text(status, shared), size_text(answer_number(status, "rss"), rss));
	status_revoked(status);
	for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		printf("%s%s %llu", i ? ", " : "", counts[i],
		       (unsigned long long)answer_number(status, counts[i]));
	printf("\nstandby loader: %s\n", json_is_true(json_object_get(status, "standby")) ? "ready" : "none");
	status_keeping(status);
	json_array_foreach(json_object_get(status, "roots"), i, root) {
		char shown[UTF8_SHOWN_MAX(PATH_BYTES_MAX)];

		utf8_show(json_string_value(root), shown, sizeof(shown));
		printf("loads from %s\n", shown);
	}
	status_limits(status);
	putchar('\n');
}

/* How each device was lost that is. */
static void status_losses(const json_t *status)
{
	const json_t *device;
	char name[80];
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		snprintf(name, sizeof(name), "%.60s is LOST", answer_text(device, "device"));
		if (json_object_get(device, "lost"))
			answer_error_print(device, "lost", name);
	}
}

static const char *device_state(const json_t *device, const char *key, char text[CELL_TEXT])
{
	(void)text;
	return json_object_get(device, key) ? "LOST" : "ok";
}

static int status_devices(const json_t *status)
{
	static const struct column columns[] = {
		{"DEVICE", cell_text, "device"},    {"KIND", cell_text, "kind"},
		{"STATE", device_state, "lost"},    {">TOTAL", cell_size, "total"},
		{">FREE", cell_size_known, "free"}, {">BUDGET", cell_size, "budget"},
		{">USED", cell_size, "used"},       {">STILL MAPPED", cell_size, "still_mapped"},
		{"NAME", cell_text, "name"},        {0},
	};

	return table_of(columns, json_object_get(status, "devices"));
}

static int status_print(const json_t *status)
{
	status_summary(status);
	status_losses(status);
	return status_devices(status);
}

int command_status(struct gpuwm_client *client, const struct arguments *arguments)
{
	return answer_show(client, arguments, "status", NULL, status_print);
}

/* ---- ps, clients ------------------------------------------------------- */

int command_ps(struct gpuwm_client *client, const struct arguments *arguments)
{
	json_t *leases;
	int code = leases_query(client, NULL, &leases);

	if (code != EXIT_DONE)
		return code;
	if (arguments->json)
		return answer_print(json_pack("{s:o}", "leases", leases));
	code = leases_print(leases);
	json_decref(leases);
	return code;
}

static const char *session_socket(const json_t *session, const char *key, char text[CELL_TEXT])
{
	return json_is_true(json_object_get(session, "ended")) ? "(ended)" : cell_text(session, key, text);
}

/* Observers are not told of publishes. */
static const char *session_publishes(const json_t *session, const char *key, char text[CELL_TEXT])
{
	return json_object_get(session, key) ? cell_count(session, key, text) : "";
}

static int clients_print(const json_t *clients)
{
	static const struct column columns[] = {
		{">SESSION", cell_number, "session"},
		{">PID", cell_number, "pid"},
		{">UID", cell_number, "uid"},
		{"SOCKET", session_socket, "socket"},
		{"NAME", cell_text, "name"},
		{">LEASES", cell_count, "leases"},
		{">PUBLISHES", session_publishes, "publishes"},
		{">CLAIMS", cell_count, "claims"},
		{">REQUESTS", cell_number, "requests"},
		{">AGE", cell_age, "since_ms"},
		{"COMMAND", cell_text, "command"},
		{0},
	};

	return table_of(columns, json_object_get(clients, "clients"));
}

static int users_print(const json_t *clients)
{
	static const struct column columns[] = {
		{">UID", cell_number, "uid"},
		{">SESSIONS", cell_number, "sessions"},
		{">LEASES", cell_number, "leases"},
		{">PUBLISHES", cell_number, "publishes"},
		{">CLAIMS", cell_number, "claims"},
		{">VERSIONS", cell_number, "versions"},
		{">NAMELESS", cell_number, "nameless"},
		{">MEMORY", cell_size, "bytes"},
		{">FDS", cell_number, "fds"},
		{">INDICES", cell_size, "index_bytes"},
		{0},
	};

	return table_of(columns, json_object_get(clients, "users"));
}

static int sessions_print(const json_t *clients)
{
	int code = clients_print(clients);

	return code == EXIT_DONE ? users_print(clients) : code;
}

int command_clients(struct gpuwm_client *client, const struct arguments *arguments)
{
	return answer_show(client, arguments, "clients", NULL, sessions_print);
}

/* ---- ping -------------------------------------------------------------- */

int command_ping(struct gpuwm_client *client, const struct arguments *arguments)
{
	uint64_t ns;

	if (gpuwm_ping(client, &ns) < 0)
		return exit_with_error();
	if (arguments->json)
		return answer_print(
			json_pack("{s:s, s:I}", "instance", gpuwm_instance(client), "ns", (json_int_t)ns));
	printf("gpuwmd %s answered in %.3f ms\n", gpuwm_instance(client), (double)ns / 1e6);
	return EXIT_DONE;
}
