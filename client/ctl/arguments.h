/* What the user wrote: a command, its words and its options. */
#ifndef GPUWM_CTL_ARGUMENTS_H
#define GPUWM_CTL_ARGUMENTS_H

#include <gpuwm/client.h>

#include "../../base/limits.h"

#include <stdbool.h>

struct command;
struct command_group;

#define POSITIONALS_MAX 2
#define DEVICES_MAX 64 /* PARTS_PER_VERSION_MAX of the daemon */

/* Every option of gpuwmctl and of its commands. */
enum command_option {
	OPTION_SOCKET,
	OPTION_OUTPUT,
	OPTION_HELP,
	OPTION_VERSION,
	/* of commands */
	OPTION_AFTER,
	OPTION_ALIAS,
	OPTION_ALIASES,
	OPTION_ALL,
	OPTION_BUDGET,
	OPTION_CONFIG,
	OPTION_COUNT,
	OPTION_CUT,
	OPTION_DEVICE,
	OPTION_DRY_RUN,
	OPTION_EXPECT,
	OPTION_FOLLOW,
	OPTION_FOR,
	OPTION_FORCE,
	OPTION_FOREGROUND,
	OPTION_FROM,
	OPTION_KEEP_DESCRIPTIONS,
	OPTION_KEEP_OLD,
	OPTION_KEY,
	OPTION_LINES,
	OPTION_LOAD,
	OPTION_NO_DESCRIBE,
	OPTION_ONCE,
	OPTION_PEERS,
	OPTION_PID,
	OPTION_RANK,
	OPTION_RANKS,
	OPTION_REMOVE,
	OPTION_RETIRE_OLD,
	OPTION_ROOT,
	OPTION_SEGMENT_BYTES,
	OPTION_SHARE_WITH,
	OPTION_SWAP,
	OPTION_TIMEOUT,
	OPTION_TO,
	OPTION_TRANSPORT,
	OPTION_UID,
	OPTION_VERBOSE,
	OPTION_WAIT,
	OPTION_WATCH,
	OPTION_YES,
	OPTIONS_END,
};

struct arguments {
	const char *socket; /* NULL: the library's default */
	bool json; /* the result as data: -o json or yaml (output_is_data) */
	bool help, version;
	const struct command_group
		*groups; /* the list of commands, for those that are about it: catalog/catalog.h */
	const char *command; /* NULL: none */
	const char *positional[POSITIONALS_MAX];
	int positional_count; /* may exceed POSITIONALS_MAX: then it is a usage error */
	bool given[OPTIONS_END];
	const char *devices[DEVICES_MAX];
	size_t device_count;
	const char *roots[ROOTS_MAX], *budgets[DEVICES_MAX];
	size_t root_count, budget_count;
	struct gpuwm_key_field key[KEY_FIELDS_MAX];
	size_t key_count;
	uint32_t rank, ranks;
	const char *alias, *config, *cut, *expect, *fingerprint, *load, *share_with;
	bool from_peers;
	const char *tier; /* of --to; NULL: not given */
	uint64_t segment_bytes; /* 0: not given */
	int64_t wait_ms; /* of --wait; -1: for ever */
	uint64_t watch_ms; /* of --watch: between two drawings at most */
	uint64_t after, count;
	uint64_t after_ms; /* of --after of a retire by force */
	uint64_t pid, uid;
	bool freed; /* of --for: freed, else ready */
	uint64_t timeout_ms;
	int64_t deadline_ms; /* of --timeout or --wait SECONDS, by clock_ms(); -1: there is no limit */
	bool is_completion; /* the user types: nothing but candidates is printed */
	uint64_t lines;
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
