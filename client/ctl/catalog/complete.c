#include "catalog.h"

#include "../commands.h"
#include "../hint.h"
#include "../exit.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Somebody is waiting at a prompt: a gpuwmd that does not answer by then is as good as none. */
#define COMPLETE_SECONDS 2
#define GIVEN_MAX 32 /* options of a command line; further ones are offered again */

/* Where on the command line the last word is. */
struct place {
	const struct command *command; /* NULL: before it */
	const struct option_row *value_of; /* the option whose value it is; NULL: none */
	bool words_only; /* after "--" */
	const struct option_row *given[GIVEN_MAX]; /* the options before it */
	size_t given_count;
	struct arguments before; /* the words before it, and the socket */
};

/* ---- options ------------------------------------------------------------------ */

/* The option that a word is: "--device", "--device=host", "-o". */
static const struct option_row *row_of_word(const struct command *command, const char *word)
{
	const struct option_row *const lists[] = {command ? command->options : NULL, global_options};

	for (size_t i = 0; i < sizeof(lists) / sizeof(*lists); i++)
		for (const struct option_row *row = lists[i]; row && row->name; row++)
			if (option_is(row, word))
				return row;
	return NULL;
}

/* "ready|freed" */
static void choices_offer(const struct completion *c, const char *choices)
{
	char one[64];

	while (*choices) {
		size_t length = strcspn(choices, "|");

		if (length < sizeof(one)) {
			memcpy(one, choices, length);
			one[length] = '\0';
			candidate_offer(c, one, NULL);
		}
		choices += length + (choices[length] == '|');
	}
}

static void value_offer(const struct completion *c, const struct option_row *row)
{
	if (strchr(row->value, '|'))
		choices_offer(c, row->value);
	else
		candidates_print(c, (enum word_kind)row->kind);
}

static bool row_is_given(const struct place *place, const struct option_row *row)
{
	for (size_t i = 0; i < place->given_count; i++)
		if (place->given[i] == row)
			return true;
	return false;
}

static void rows_offer(const struct completion *c, const struct place *place, const struct option_row *rows)
{
	char text[64];

	for (; rows && rows->name; rows++) {
		if (row_is_given(place, rows) && !rows->repeats)
			continue;
		snprintf(text, sizeof(text), "--%s", rows->name);
		candidate_offer(c, text, rows->help);
	}
}

/* ---- the line ------------------------------------------------------------------ */

/* Takes a word that stands before the last one. */
static void word_take(struct place *place, const char *word)
{
	const struct option_row *row;

	if (place->value_of) {
		if (place->value_of->take == take_socket)
			place->before.socket = word;
		place->value_of = NULL;
		return;
	}
	if (!place->words_only && strcmp(word, "--") == 0) {
		place->words_only = true;
	} else if (!place->words_only && word[0] == '-' && word[1]) {
		row = row_of_word(place->command, word);
		if (!row)
			return;
		if (place->given_count < GIVEN_MAX)
			place->given[place->given_count++] = row;
		if (row->value && row->value[0] != '[' && !strchr(word, '='))
			place->value_of = row;
		else if (row->take == take_socket)
			place->before.socket = strchr(word, '=') + 1;
	} else if (!place->command) {
		place->command = command_find(place->before.groups, word);
		place->before.command = word;
	} else if (place->before.positional_count++ < POSITIONALS_MAX) {
		place->before.positional[place->before.positional_count - 1] = word;
	}
}

static void last_offer(const struct place *place, const char *word)
{
	struct completion c = {.arguments = &place->before, .current = word, .before = ""};
	const struct option_row *row = word[0] == '-' ? row_of_word(place->command, word) : NULL;
	int index = place->before.positional_count;
	char option[64];

	if (place->value_of) {
		value_offer(&c, place->value_of);
	} else if (!place->words_only && row && row->value && strchr(word, '=') &&
		   strlen(row->name) + 4 < sizeof(option)) {
		snprintf(option, sizeof(option), "--%s=", row->name);
		c.before = option;
		c.current = strchr(word, '=') + 1;
		value_offer(&c, row);
	} else if (!place->words_only && word[0] == '-') {
		if (place->command)
			rows_offer(&c, place, place->command->options);
		rows_offer(&c, place, global_options);
	} else if (!place->before.command || (place->command && index < POSITIONALS_MAX &&
					      place->command->words[index].kind == WORD_COMMAND)) {
		const struct command_group *groups = place->before.groups;

		for (const struct command *any = command_next(groups, NULL); any;
		     any = command_next(groups, any))
			if (!any->hidden)
				candidate_offer(&c, any->name, any->summary);
	} else if (place->command && index < POSITIONALS_MAX && place->command->words[index].name) {
		candidates_print(&c, place->command->words[index].kind);
	}
}

static void complete_give_up(int signal_number)
{
	(void)signal_number;
	_exit(EXIT_DONE);
}

/* Prints what may stand in the place of the last word of `left`, for the shells' completion in client/ctl/completion: a line for
 * each candidate, with a tab and what it is. The word before the first is "complete" itself. Prints nothing about mistakes. Always
 * returns EXIT_DONE. */
static int complete_run(struct gpuwm_client *none, const struct arguments *arguments)
{
	struct place place = {.before = {.socket = arguments->socket,
					 .groups = arguments->groups,
					 .deadline_ms = -1,
					 .is_completion = true}};
	int first = 1;

	(void)none;
	if (arguments->left_count > 1 && strcmp(arguments->left[1], "--") == 0)
		first++;
	if (arguments->left_count <= first)
		return EXIT_DONE;
	signal(SIGALRM, complete_give_up);
	alarm(COMPLETE_SECONDS);
	for (int i = first; i < arguments->left_count - 1; i++)
		word_take(&place, arguments->left[i]);
	last_offer(&place, arguments->left[arguments->left_count - 1]);
	return EXIT_DONE;
}

const struct command command_complete = {
	.name = "complete",
	.summary = "print what may stand in the place of the last word",
	.example = "gpuwmctl complete -- swap llama \"\"",
	.socket = SOCKET_NONE,
	.raw = true,
	.hidden = true,
	.run = complete_run,
};
