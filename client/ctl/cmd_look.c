/* status, ps, clients, ping: what gpuwmd tells about itself. */
#include "ctl.h"

#include <stdio.h>
#include <string.h>

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

/* Memory of GPUs that loaders hold for the next load. */
static void status_keeping(const json_t *status)
{
	const json_t *loader, *context;
	char size[SHORT_TEXT];
	size_t i, j;

	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		printf("loader %llu keeps for the next load:",
		       (unsigned long long)answer_number(loader, "pid"));
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

static void status_summary(const json_t *status)
{
	static const char *const counts[] = {"versions", "aliases",      "pins",   "sessions",
					     "leases",   "segments",     "fds",    "publishes",
					     "claims",   "jobs_running", "loaders"};
	char size[SHORT_TEXT], rss[SHORT_TEXT];
	size_t i;
	const json_t *root;

	printf("gpuwmd %s, pid %llu, up %llu s%s\n", answer_text(status, "server"),
	       (unsigned long long)answer_number(status, "pid"),
	       (unsigned long long)answer_number(status, "uptime_ms") / 1000,
	       json_is_true(json_object_get(status, "draining")) ? ", DRAINING" : "");
	printf("instance %s\n", answer_text(status, "instance"));
	status_restarts(status);
	printf("holds %s in segments; its own memory: %s\n", size_text(answer_number(status, "bytes"), size),
	       size_text(answer_number(status, "rss"), rss));
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

static int status_devices(const json_t *status)
{
	struct table *table = table_new("DEVICE|KIND|STATE|>TOTAL|>FREE|>BUDGET|>USED|>STILL MAPPED|NAME");
	const json_t *device;
	size_t i;

	json_array_foreach(json_object_get(status, "devices"), i, device) {
		table_cell(table, answer_text(device, "device"));
		table_cell(table, answer_text(device, "kind"));
		table_cell(table, json_object_get(device, "lost") ? "LOST" : "ok");
		table_size(table, answer_number(device, "total"));
		if (json_object_get(device, "free"))
			table_size(table, answer_number(device, "free"));
		else
			table_cell(table, "-");
		table_size(table, answer_number(device, "budget"));
		table_size(table, answer_number(device, "used"));
		table_size(table, answer_number(device, "still_mapped"));
		table_cell(table, answer_text(device, "name"));
	}
	return table_print(table);
}

int command_status(struct gpuwm_client *client, const struct arguments *arguments)
{
	json_t *status;
	int code = answer_query(client, arguments, "status", NULL, &status);

	if (code != EXIT_DONE)
		return code;
	if (!arguments->json) {
		status_summary(status);
		status_losses(status);
		code = status_devices(status);
	}
	json_decref(status);
	return code;
}

/* ---- ps, clients ------------------------------------------------------- */

/* A lease with what is known of its holder, for both forms of output. */
static json_t *lease_with_holder(const json_t *session, const json_t *lease)
{
	static const char *const keys[] = {"session", "pid", "uid", "name", "command", "ended"};
	json_t *row = json_copy((json_t *)lease);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
		if (json_object_get(session, keys[i]))
			json_object_set(row, keys[i], json_object_get(session, keys[i]));
	return row;
}

static json_t *leases_collect(const json_t *clients, const char *version)
{
	json_t *leases = json_array();
	const json_t *session, *lease;
	size_t i, j;

	json_array_foreach(json_object_get(clients, "clients"), i, session) {
		json_array_foreach(json_object_get(session, "leases"), j, lease) {
			if (!version || strcmp(answer_text(lease, "version"), version) == 0)
				json_array_append_new(leases, lease_with_holder(session, lease));
		}
	}
	return leases;
}

/* A revoked one is listed for as long as its process may still map the memory. */
static const char *lease_state(const json_t *lease)
{
	if (!json_object_get(lease, "revoked_ms"))
		return "held";
	return json_is_true(json_object_get(lease, "ended")) ? "revoked, disconnected" : "revoked";
}

int leases_print(const json_t *leases)
{
	struct table *table = table_new(">LEASE|VERSION|DEVICE|>RANK|>PID|>UID|NAME|>AGE|STATE|COMMAND");
	char device[16], age[SHORT_TEXT];
	const json_t *lease;
	size_t i;

	json_array_foreach(leases, i, lease) {
		device_short(answer_text(lease, "device"), device);
		table_cellf(table, "%llu", (unsigned long long)answer_number(lease, "lease"));
		answer_name_cell(table, lease);
		table_cell(table, device);
		table_cellf(table, "%llu", (unsigned long long)answer_number(lease, "rank"));
		table_cellf(table, "%llu", (unsigned long long)answer_number(lease, "pid"));
		table_cellf(table, "%llu", (unsigned long long)answer_number(lease, "uid"));
		table_cell(table, answer_text(lease, "name"));
		table_cell(table, age_text(answer_number(lease, "since_ms"), age));
		table_cell(table, lease_state(lease));
		table_cell(table, answer_text(lease, "command"));
	}
	return table_print(table);
}

int leases_query(struct gpuwm_client *client, const char *version, json_t **ret_leases)
{
	const struct arguments quiet = {.json = false};
	json_t *clients;
	int code = answer_query(client, &quiet, "clients", NULL, &clients);

	if (code != EXIT_DONE)
		return code;
	*ret_leases = leases_collect(clients, version);
	json_decref(clients);
	return EXIT_DONE;
}

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

/* Observers are not told of publishes. */
static void publishes_cell(struct table *table, const json_t *session)
{
	const json_t *publishes = json_object_get(session, "publishes");

	if (publishes)
		table_cellf(table, "%zu", json_array_size(publishes));
	else
		table_cell(table, "-");
}

static int clients_print(const json_t *clients)
{
	struct table *table =
		table_new(">SESSION|>PID|>UID|SOCKET|NAME|>LEASES|>PUBLISHES|>CLAIMS|>REQUESTS|>AGE|COMMAND");
	char age[SHORT_TEXT];
	const json_t *session;
	size_t i;

	json_array_foreach(json_object_get(clients, "clients"), i, session) {
		table_cellf(table, "%llu", (unsigned long long)answer_number(session, "session"));
		table_cellf(table, "%llu", (unsigned long long)answer_number(session, "pid"));
		table_cellf(table, "%llu", (unsigned long long)answer_number(session, "uid"));
		table_cell(table, json_is_true(json_object_get(session, "ended"))
					  ? "(ended)"
					  : answer_text(session, "socket"));
		table_cell(table, answer_text(session, "name"));
		table_cellf(table, "%zu", json_array_size(json_object_get(session, "leases")));
		publishes_cell(table, session);
		table_cellf(table, "%zu", json_array_size(json_object_get(session, "claims")));
		table_cellf(table, "%llu", (unsigned long long)answer_number(session, "requests"));
		table_cell(table, age_text(answer_number(session, "since_ms"), age));
		table_cell(table, answer_text(session, "command"));
	}
	return table_print(table);
}

static int users_print(const json_t *clients)
{
	struct table *table =
		table_new(">UID|>SESSIONS|>LEASES|>PUBLISHES|>CLAIMS|>VERSIONS|>MEMORY|>FDS|>INDICES");
	static const char *const counts[] = {"uid", "sessions", "leases", "publishes", "claims", "versions"};
	char size[SHORT_TEXT];
	const json_t *user;
	size_t i;

	json_array_foreach(json_object_get(clients, "users"), i, user) {
		for (size_t j = 0; j < sizeof(counts) / sizeof(*counts); j++)
			table_cellf(table, "%llu", (unsigned long long)answer_number(user, counts[j]));
		table_cell(table, size_text(answer_number(user, "bytes"), size));
		table_cellf(table, "%llu", (unsigned long long)answer_number(user, "fds"));
		table_cell(table, size_text(answer_number(user, "index_bytes"), size));
	}
	return table_print(table);
}

int command_clients(struct gpuwm_client *client, const struct arguments *arguments)
{
	json_t *clients;
	int code = answer_query(client, arguments, "clients", NULL, &clients);

	if (code != EXIT_DONE)
		return code;
	if (!arguments->json) {
		code = clients_print(clients);
		if (code == EXIT_DONE)
			code = users_print(clients);
	}
	json_decref(clients);
	return code;
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
