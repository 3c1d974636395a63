/* ls --peers: what other nodes have, as gpuwm-peer finds out. It has the keys and the network, gpuwmctl has not. */
#include "commands.h"

#include "answer.h"
#include "table.h"
#include "doctor/gpuwmd.h"
#include "doctor/program.h"
#include "exit.h"
#include "line.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

/* gpuwm-peer asks all nodes at once, and waits a few seconds for each. Its names may take the resolver's time besides. */
#define PEERS_MS 60000
/* 256 nodes with 100 versions each have some 10 MiB of JSON. */
#define PEERS_TEXT ((size_t)64 << 20)
#define CONFIG_BYTES (PATH_BYTES_MAX + 64) /* gpuwmd's own path, below its folder in /proc */

/* ---- asking --------------------------------------------------------------- */

/* What gpuwm-peer said besides its log's marks. */
static int list_failed(int status, char *text)
{
	static const char mark[] = "gpuwm-peer: error: ";
	char *line = strstr(text, mark);

	text[strcspn(text, "\n")] = '\0';
	if (status == -ETIMEDOUT)
		return exit_with(EXIT_TIMEOUT, "does the resolver answer?", "gpuwm-peer took more than %d s",
				 PEERS_MS / 1000);
	if (status < 0)
		return exit_with(EXIT_FAILED, NULL, "gpuwm-peer can't be run: %s", strerror(-status));
	return exit_with(EXIT_FAILED, "see docs/peers.md", "%s",
			 line ? line + strlen(mark) : "gpuwm-peer failed without a message");
}

/* The file whose [peers] names the nodes: what --config says, else that of the gpuwmd that answers. */
static int choose_config(struct gpuwm_client *client, const char *given, char ret_path[CONFIG_BYTES])
{
	json_t *status;
	bool told;
	int code;

	if (given) {
		snprintf(ret_path, CONFIG_BYTES, "%s", given);
		return EXIT_DONE;
	}
	code = answer_get(client, "status", NULL, &status);
	if (code != EXIT_DONE)
		return code;
	told = gpuwmd_config_told(status, ret_path, CONFIG_BYTES);
	json_decref(status);
	return told ? EXIT_DONE
		    : (int)exit_with(EXIT_FAILED, "--config FILE names one that has [peers]",
				     "gpuwmd runs without a configuration file, which would name other nodes");
}

static int peers_ask(const char *config, json_t **ret_answer)
{
	char program[2048], *text;
	const char *words[] = {program, "--list", "--config", config, NULL};
	int status;

	if (!program_find("gpuwm-peer", program, sizeof(program)))
		return exit_with(EXIT_FAILED, "install the package gpuwm-peer, or build with OpenSSL 3",
				 "%s is missing: it asks other nodes", program);
	text = malloc(PEERS_TEXT);
	status = text ? program_run(words, PEERS_MS, true, text, PEERS_TEXT) : -ENOMEM;
	if (status != 0) {
		status = list_failed(status, text ? text : (char[1]){""});
		free(text);
		return status;
	}
	*ret_answer = json_loads(text, 0, NULL);
	free(text);
	return *ret_answer ? EXIT_DONE
			   : (int)exit_with(EXIT_FAILED, NULL, "gpuwm-peer printed text that is not JSON");
}

/* ---- one row for each version of each node ---------------------------------- */

/* Whether a ready version of this node has the same bytes. */
static bool is_here(const json_t *list, const char *content)
{
	const json_t *version;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (*content && strcmp(answer_text(version, "content"), content) == 0 &&
		    strcmp(answer_text(version, "state"), "ready") == 0)
			return true;
	}
	return false;
}

/* Moves the versions of all nodes to one array, each with its node, and with whether this node has the same bytes. */
static void versions_gather(json_t *answer, const json_t *list, const char *model)
{
	json_t *rows = json_array(), *node, *version;
	size_t i, j;

	json_array_foreach(json_object_get(answer, "nodes"), i, node) {
		json_array_foreach(json_object_get(node, "versions"), j, version) {
			if (model && strcmp(answer_text(version, "model"), model) != 0)
				continue;
			json_object_set(version, "node", json_object_get(node, "node"));
			json_object_set(version, "host", json_object_get(node, "host"));
			json_object_set(version, "port", json_object_get(node, "port"));
			json_object_set_new(version, "here",
					    json_boolean(is_here(list, answer_text(version, "content"))));
			json_array_append(rows, version);
		}
		json_object_del(node, "versions");
	}
	json_object_set_new(answer, "versions", rows);
}

/* ---- showing --------------------------------------------------------------- */

static const char *cell_here(const json_t *row, const char *key, char text[CELL_TEXT])
{
	snprintf(text, CELL_TEXT, "%s", json_is_true(json_object_get(row, key)) ? "yes" : "");
	return text;
}

/* As gpuwmctl load takes it. */
static const char *cell_source(const json_t *row, const char *key, char text[CELL_TEXT])
{
	const char *host = answer_text(row, "host");
	bool v6 = strchr(host, ':') != NULL;

	(void)key;
	snprintf(text, CELL_TEXT, "peer://%s%s%s:%llu/%s@%s", v6 ? "[" : "", host, v6 ? "]" : "",
		 (unsigned long long)answer_number(row, "port"), answer_text(row, "model"),
		 answer_text(row, "tag"));
	return text;
}

static int peers_show(const json_t *result)
{
	static const struct column columns[] = {
		{"NODE", cell_text, "node"},
		{"VERSION", cell_name, NULL},
		{"ALIASES", cell_join, "aliases"},
		{"?TIER", cell_text, "tier"},
		{">SIZE", cell_size, "bytes"},
		{"?>RANKS", cell_number, "world"},
		{"HERE", cell_here, "here"},
		{"+SOURCE", cell_source, NULL},
		{"+CONTENT", cell_text, "content"},
		{"+FINGERPRINT", cell_text, "fingerprint"},
		{0},
	};
	uint64_t left_out = answer_number(result, "left_out");
	const json_t *nodes = json_object_get(result, "nodes"), *node;
	size_t i, failures = 0;
	int code;

	json_array_foreach(nodes, i, node)
		failures += json_object_get(node, "error") != NULL;
	code = table_or_say(columns, json_object_get(result, "versions"),
			    failures > 0 && failures == json_array_size(nodes) ? "no other node answered"
									       : "no versions on other nodes");
	json_array_foreach(nodes, i, node) {
		const char *host = answer_text(node, "host"),
			   *message = answer_text(json_object_get(node, "error"), "message");

		/* Most errors name the node already. */
		answer_error_print(node, "error", strstr(message, host) ? "failed" : host);
	}
	if (json_array_size(nodes) == 0)
		say("no nodes are known: set peer or dns in [peers] of gpuwmd.conf");
	if (left_out > 0)
		say("%llu further addresses were not asked: a name has too many", (unsigned long long)left_out);
	return code;
}

int peers_get(struct gpuwm_client *client, const char *given, json_t **ret_answer)
{
	char config[CONFIG_BYTES];
	int code = choose_config(client, given, config);

	return code == EXIT_DONE ? peers_ask(config, ret_answer) : code;
}

int peers_run(struct gpuwm_client *client, const char *given, const char *model)
{
	static const struct view view = {peers_show, cell_source, NULL, "versions"};
	json_t *answer, *list;
	int code = peers_get(client, given, &answer);

	if (code != EXIT_DONE)
		return code;
	code = answer_get(client, "list", NULL, &list);
	if (code == EXIT_DONE) {
		versions_gather(answer, list, model);
		json_decref(list);
		return result_show(answer, &view);
	}
	json_decref(answer);
	return code;
}
