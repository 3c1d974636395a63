/* What the user wrote: a command, its words and its options. */
#ifndef GPUWM_CTL_ARGUMENTS_H
#define GPUWM_CTL_ARGUMENTS_H

#include <gpuwm/client.h>

#include "../../proto/limits.h"

#include <stdbool.h>

#define POSITIONALS_MAX 2
#define DEVICES_MAX 64 /* PARTS_PER_VERSION_MAX of the daemon */

/* Options that belong to commands; a command's row says which it takes. getopt
 * returns them too: 1 is its code for what is no option. */
enum command_option {
	OPTION_DEVICE = 1 << 1,
	OPTION_RANK = 1 << 2,
	OPTION_ALIAS = 1 << 3,
	OPTION_SWAP = 1 << 4,
	OPTION_WAIT = 1 << 5,
	OPTION_WAIT_SECONDS = 1 << 6, /* --wait with or without a number */
	OPTION_EXPECT = 1 << 7,
	OPTION_RETIRE_OLD = 1 << 8,
	OPTION_REMOVE = 1 << 9,
	OPTION_AFTER = 1 << 10,
	OPTION_COUNT = 1 << 11,
	OPTION_LOAD = 1 << 12,
	OPTION_KEEP_OLD = 1 << 13,
	OPTION_DRY_RUN = 1 << 14,
	OPTION_NO_WAIT = 1 << 15,
	OPTION_KEY = 1 << 18,
	OPTION_FORCE = 1 << 19,
	OPTION_PID = 1 << 20,
	OPTION_UID = 1 << 21,
	OPTION_SHARE_WITH = 1 << 22,
	OPTION_SEGMENT_BYTES = 1 << 23,
};

struct arguments {
	const char *socket; /* NULL: the library's default */
	bool json, help, version;
	const char *command; /* NULL: none */
	const char *positional[POSITIONALS_MAX];
	int positional_count; /* may exceed POSITIONALS_MAX: then it is a usage error */
	unsigned given; /* bits of command_option */
	const char *devices[DEVICES_MAX];
	size_t device_count;
	struct gpuwm_key_field key[KEY_FIELDS_MAX];
	size_t key_count;
	uint32_t rank;
	const char *alias, *expect, *load, *share_with;
	uint64_t segment_bytes; /* 0: not given */
	int64_t wait_ms; /* of --wait; -1: for ever */
	uint64_t after, count;
	uint64_t after_ms; /* of --after of a retire by force */
	uint64_t pid, uid;
};

/* Sorts argv into *ret_arguments, whose texts stay argv's. EXIT_DONE, or
 * EXIT_USAGE after printing what is wrong. */
int arguments_parse(int argc, char **argv, struct arguments *ret_arguments);

#define ALIAS_TEXT 512 /* gpuwmd judges names */
/* Splits the first argument, MODEL[@ALIAS]; *ret_alias lies in model, NULL: none. EXIT_DONE, or EXIT_USAGE
 * after printing why. */
int arguments_alias(const struct arguments *arguments, char ret_model[ALIAS_TEXT], const char **ret_alias);

#endif
