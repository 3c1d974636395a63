/* peers: the keys for other nodes, and which nodes answer. gpuwm-peer judges both: it has OpenSSL, gpuwmctl has not. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Two weeks: who renews by hand has a holiday. */
#define DAYS_MIN 14
/* 256 nodes with 1,000 versions each would be more. Then the group says so. */
#define LIST_TEXT ((size_t)16 << 20)

/* The ways for the bytes: a line for each, the best one first, "by WAY" or "not by WAY: WHY". */
static void ways_judge(struct findings *findings, char *text)
{
	static const char missing[] = "not by ", there[] = "by ";

	for (char *line; (line = strsep(&text, "\n"));) {
		char *colon = strchr(line, ':');

		if (strncmp(line, there, strlen(there)) == 0)
			finding(findings, VERDICT_OK, "transport", line + strlen(there), NULL,
				"the bytes of versions may go by it");
		if (strncmp(line, missing, strlen(missing)) != 0 || !colon)
			continue;
		*colon = '\0';
		finding(findings, VERDICT_NOT_APPLICABLE, "transport", line + strlen(missing), NULL, "%s",
			colon + 2);
	}
}

/* Returns whether there are keys that are right. */
static bool keys_judge(struct findings *findings, const char *program, const char *path, const char *config)
{
	const char *words[] = {program, "--check-config", "--config", config, NULL};
	static const char mark[] = "gpuwm-peer: error: ";
	char text[4096];
	int status = program_run(words, PROGRAM_MS, true, text, sizeof(text));
	const char *why = strstr(text, mark);
	long days = strtol(text, NULL, 10);
	char *ways;

	if (status != 0 && strstr(text, "this node has no peers")) {
		finding(findings, VERDICT_NOT_APPLICABLE, "keys", path, NULL, "there are no keys for peers");
		return false;
	}
	if (status != 0) {
		why = why ? why + strlen(mark) : text;
		finding(findings, VERDICT_FAILED, "keys", path,
			strstr(text, "[peers]") ? "see docs/peers.md"
						: "see the check of the configuration, in those of models",
			"%.*s", (int)strcspn(why, "\n"), status < 0 ? strerror(-status) : why);
		return false;
	}
	ways = strchr(text, '\n');
	if (ways)
		*ways++ = '\0';
	if (strstr(text, "days") && days < DAYS_MIN)
		finding(findings, VERDICT_WARNING, "keys", path,
			"have a new certificate made, then: systemctl reload gpuwm-peer",
			"this node's certificate ends in %ld days", days);
	else
		finding(findings, VERDICT_OK, "keys", path, NULL, "gpuwm-peer takes them (%s)", text);
	if (ways)
		ways_judge(findings, ways);
	return true;
}

static void nodes_judge(struct findings *findings, const char *program, const char *config)
{
	const char *words[] = {program, "--list", "--config", config, NULL};
	char *text = malloc(LIST_TEXT);
	int status = text ? program_run(words, program_limit(PROGRAM_MS), false, text, LIST_TEXT) : -ENOMEM;
	json_t *answer = status == 0 ? json_loads(text, 0, NULL) : NULL;
	const json_t *node;
	size_t i;

	free(text);
	if (!answer)
		finding(findings, VERDICT_WARNING, "peer", NULL, "does the resolver answer?",
			"gpuwm-peer did not tell which nodes answer: %s",
			status < 0 ? strerror(-status) : "it failed");
	json_array_foreach(json_object_get(answer, "nodes"), i, node) {
		const json_t *error = json_object_get(node, "error");
		const char *host = answer_text(node, "host"), *detail = answer_text(error, "detail");

		if (error)
			finding(findings, VERDICT_WARNING, "peer", host, *detail ? detail : NULL, "%s",
				answer_text(error, "message"));
		else
			finding(findings, VERDICT_OK, "peer", host, NULL, "%s has %zu versions",
				answer_text(node, "node"), json_array_size(json_object_get(node, "versions")));
	}
	json_decref(answer);
}

void check_peers(struct findings *findings, const char *socket)
{
	char program[PLACE_BYTES], path[PLACE_BYTES], config[PLACE_BYTES];
	const char *note;

	if (!gpuwmd_config_find(findings, "keys", socket, path, config, &note))
		return;
	if (!program_find("gpuwm-peer", program, sizeof(program)))
		finding(findings, VERDICT_NOT_APPLICABLE, "keys", path, NULL,
			"there is no gpuwm-peer beside gpuwmctl: nothing is served to other nodes%s", note);
	else if (keys_judge(findings, program, path, config))
		nodes_judge(findings, program, config);
}
