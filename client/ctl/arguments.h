/* What the user wrote: a command, its words, and the options that all commands take. A command's own options set variables of
 * its file. */
#ifndef GPUWM_CTL_ARGUMENTS_H
#define GPUWM_CTL_ARGUMENTS_H

#include <gpuwm/client.h>

#include "../../base/limits.h"

#include <stdbool.h>

struct command;
struct command_group;

#define POSITIONALS_MAX 2
#define DEVICES_MAX 64 /* PARTS_PER_VERSION_MAX of the daemon */

/* A number that an option takes, or a time in ms. */
struct option_number {
	bool given;
	uint64_t value;
};

struct arguments {
	const char *socket; /* NULL: the library's default */
	bool json; /* the result as data: -o json (output_is_data) */
	bool help, version;
	const struct command_group
		*groups; /* the list of commands, for those that are about it: catalog/catalog.h */
	const char *command; /* NULL: none */
	const char *positional[POSITIONALS_MAX];
	int positional_count; /* may exceed POSITIONALS_MAX: then it is a usage error */
	struct option_number watch; /* of --watch: ms between two drawings at most */
	struct option_number limit; /* of --timeout or --wait SECONDS: ms that the whole command may take */
	int64_t deadline_ms; /* when that is over, by clock_steady_ms(); -1: there is no limit */
	bool is_completion; /* the user types: nothing but candidates is printed */
	int left_count; /* what stands after the command's name */
	char **left;
};

/* Sorts what stands before the command's name into *ret_arguments, whose texts stay argv's, and finds that name. The
 * rest of argv is `left`. EXIT_DONE, or EXIT_USAGE after printing what is wrong. */
int arguments_parse(int argc, char **argv, struct arguments *ret_arguments);
/* Sorts `left`, in which the command's words and options and the global options may stand in any order. */
int arguments_parse_command(const struct command *command, struct arguments *arguments);

#define ALIAS_TEXT 512 /* gpuwmd judges names */
/* Splits the first argument, MODEL[@ALIAS]; *ret_alias lies in model, NULL: none. EXIT_DONE, or EXIT_USAGE
 * after printing why. */
int arguments_alias(const struct arguments *arguments, char ret_model[ALIAS_TEXT], const char **ret_alias);

#endif
