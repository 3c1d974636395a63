/* explain: what an error code or an exit status means. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"

#include "../../service/suggest.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#define CODE_COLUMNS 15 /* EPROTONOSUPPORT */

static json_t *explanation_json(const struct explanation *e)
{
	return json_pack("{s:s, s:s, s:s, s:s}", "code", e->code, "meaning", e->meaning, "cause", e->cause,
			 "remedy", e->remedy);
}

static void field_print(const char *name, const char *text)
{
	size_t column = strlen(name);

	fputs(name, stdout);
	lines_wrap(stdout, text, column, column);
}

static void list_print(const char *title, const struct explanation *list)
{
	printf("%s:\n", title);
	for (; list->code; list++) {
		printf("  %-*s  ", CODE_COLUMNS, list->code);
		lines_wrap(stdout, list->meaning, CODE_COLUMNS + 4, CODE_COLUMNS + 4);
	}
}

static json_t *list_json(const struct explanation *list)
{
	json_t *array = json_array();

	for (; list->code; list++)
		json_array_append_new(array, explanation_json(list));
	return array;
}

static int code_not_found(const char *code)
{
	struct suggestion suggestion;

	suggest_begin(&suggestion, code);
	for (const struct explanation *e = explanations_of_errors; e->code; e++)
		suggest_offer(&suggestion, e->code);
	if (suggestion.name[0])
		return exit_with(EXIT_NOT_FOUND, "gpuwmctl explain lists all of them",
				 "there is no error code '%s'; did you mean %s?", code, suggestion.name);
	return exit_with(EXIT_NOT_FOUND, "gpuwmctl explain lists all of them",
			 "there is no error code and no exit status '%s'", code);
}

/* The explanation of an error code (upper or lower case) or of an exit status; NULL: there is none. */
static const struct explanation *explanation_find(const char *code)
{
	for (const struct explanation *e = explanations_of_errors; e->code; e++)
		if (strcasecmp(e->code, code) == 0)
			return e;
	for (const struct explanation *e = explanations_of_statuses; e->code; e++)
		if (strcasecmp(e->code, code) == 0)
			return e;
	return NULL;
}

static int explain_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	const char *code = arguments->positional[0];
	const struct explanation *e = code ? explanation_find(code) : NULL;

	(void)client;
	if (code && !e)
		return code_not_found(code);
	if (arguments->json)
		return answer_print(e ? explanation_json(e)
				      : json_pack("{s:o, s:o}", "statuses", list_json(explanations_of_statuses),
						  "errors", list_json(explanations_of_errors)));
	if (e) {
		printf("%s: ", e->code);
		lines_wrap(stdout, e->meaning, strlen(e->code) + 2, strlen(e->code) + 2);
		field_print("  usual cause: ", e->cause);
		field_print("  what to do:  ", e->remedy);
	} else {
		list_print("exit status", explanations_of_statuses);
		putchar('\n');
		list_print("error codes", explanations_of_errors);
	}
	return EXIT_DONE;
}

const struct command command_explain = {
	.name = "explain",
	.words = {{"CODE", WORD_CODE, true}},
	.summary = "say what an error code or an exit status means, and what to do",
	.about = "Without CODE: list all of them.",
	.example = "gpuwmctl explain ENOSPC\n"
		   "gpuwmctl explain 4",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = explain_run,
};
