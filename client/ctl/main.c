#include "catalog/catalog.h"

#include "command.h"
#include "doctor/gpuwmd.h"
#include "exit.h"
#include "hint.h"
#include "line.h"
#include "output.h"
#include "runner.h"

#include "../../base/clock.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>

/* If systemd holds the socket and gpuwmd's unit is down, or if gpuwm-keeper holds it and gpuwmd's file was removed, nobody can answer.
 * Says so once. */
static void silence_note(const struct arguments *arguments)
{
	static bool is_told;
	char text[UNIT_TEXT_BYTES], program[PATH_MAX];
	struct unit unit;
	pid_t keeper;

	if (is_told)
		return;
	keeper = runner_keeper_find(arguments->socket, NULL, 0);
	if (keeper && runner_program_is_gone(keeper, program, sizeof(program))) {
		exit_note(RUNNER_GONE_REMEDY, RUNNER_GONE, (int)keeper, program);
		is_told = true;
	} else if (unit_keeps_waiting(arguments->socket, &unit)) {
		unit_tell(&unit, text);
		exit_note(UNIT_REMEDY, UNIT ": %s", text);
		is_told = true;
	}
}

static int command_run(const struct command *command, const struct arguments *arguments)
{
	struct gpuwm_client *client = NULL;
	int code;

	if (command->socket != SOCKET_NONE && connect_as(arguments, command->socket, &client) < 0) {
		const bool late = gpuwm_error()->code == -ETIMEDOUT;

		code = exit_with_connect_error();
		if (late)
			silence_note(arguments);
		return code;
	}
	code = arguments->watch.given ? watch(client, arguments, command->run)
				      : command->run(client, arguments);
	if (code == EXIT_NOT_FOUND && client && !arguments->json) {
		if (bound_begin(arguments, NULL) == EXIT_DONE)
			hint_print(client, command, arguments);
		bound_end();
	}
	gpuwm_close(client);
	return code;
}

static int command_dispatch(struct arguments *arguments)
{
	const struct command *command = command_find(arguments->groups, arguments->command);
	int code;

	if (!command)
		return command_unknown(arguments->groups, arguments->command);
	if (arguments->help) {
		help_command_print(command);
		return EXIT_DONE;
	}
	if (command->raw)
		return command_run(command, arguments);
	code = arguments_parse_command(command, arguments);
	if (arguments->help && code == EXIT_DONE) {
		help_command_print(command);
		return EXIT_DONE;
	}
	if (code == EXIT_DONE)
		code = words_count(command, arguments);
	if (code == EXIT_DONE)
		code = words_check(command, arguments);
	if (code != EXIT_DONE)
		return code;
	if (command->no_names && output_form() == OUTPUT_NAME)
		return exit_with(EXIT_USAGE, "-o name prints what other commands take; use json in scripts",
				 "%s has no -o name", command->name);
	/* Connecting counts, too. 0 is a limit: gpuwmd then has the time of one answer. */
	if (arguments->limit.given)
		arguments->deadline_ms = clock_deadline((int64_t)arguments->limit.value);
	return command_run(command, arguments);
}

int main(int argc, char **argv)
{
	struct arguments arguments;
	int code;

	exit_without_memory();
	code = arguments_parse(argc, argv, &arguments);
	if (code != EXIT_DONE)
		return code;
	arguments.groups = command_groups;
	connect_explain_by(silence_note);
	if (arguments.version) {
		printf("gpuwmctl %s\n", gpuwm_library_version());
	} else if (arguments.command) {
		code = command_dispatch(&arguments);
	} else if (arguments.help) {
		help_print(command_groups);
	} else {
		help_usage_print(stderr);
		return exit_with(EXIT_USAGE, "gpuwmctl --help lists the commands", "no command was given");
	}
	/* A write before the last one may have failed too. */
	if ((fflush(stdout) != 0 || ferror(stdout)) && code == EXIT_DONE)
		return exit_with(EXIT_FAILED, NULL, "can't write to stdout");
	return line_is_lost() && code == EXIT_DONE ? EXIT_FAILED : code;
}
