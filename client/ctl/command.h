/* What a command of gpuwmctl is: its words, its options, its help. The rows are in catalog/. */
#ifndef GPUWM_CTL_COMMAND_H
#define GPUWM_CTL_COMMAND_H

#include "arguments.h"

/* What a word (a positional argument) of a command is. */
enum word_kind {
	WORD_ANY,
	WORD_REF, /* MODEL, MODEL@TAG, MODEL@ALIAS, a version id */
	WORD_NEW, /* MODEL@TAG of a version that is to be */
	WORD_ALIAS_OF, /* MODEL[@ALIAS] */
	WORD_MODEL, /* MODEL alone */
	WORD_ALIAS, /* an alias of the first word's model */
	WORD_NAME, /* of an alias that may be new */
	WORD_PIN, /* the name of a pin */
	WORD_TARGET, /* a tag, an alias, a version id */
	WORD_FILE, /* a file or a folder */
	WORD_SOURCE, /* the same, or hf:ORG/NAME, a model in the hub's cache */
	WORD_LEASE, /* the number of a lease */
	WORD_JOB, /* the number of a job */
	WORD_REGION, /* a region's name or id */
	WORD_COMMAND, /* the name of a command */
	WORD_CODE, /* an error code or an exit status */
	WORD_PIN_NEW, /* the name of a pin that is to be */
	/* What options take: */
	WORD_DEVICE,
	WORD_CUT, /* the name of a shipped cut plan, or a file */
	WORD_ID, /* the id of the version that an alias names */
	WORD_PID,
	WORD_UID,
};

struct command_word {
	const char *name; /* as the usage shows it; NULL: there is no such word */
	enum word_kind kind;
	bool may_miss;
};

/* An option. Each command has rows of its own, so that one name may mean different things. */
struct option_row {
	enum command_option option; /* what arguments->given tells */
	const char *name; /* without its dashes; NULL ends a list */
	char letter; /* 0: none */
	const char
		*value; /* as the usage shows it; "[VALUE]": it may be missing; NULL: the option takes none */
	bool repeats;
	const char *
		needs; /* the name of another option of the command, without which this one has no meaning, or NULL */
	/* Takes the value, NULL if it is missing. EXIT_DONE, or EXIT_USAGE after printing what is wrong. NULL: that the option is
	 * given is all. */
	int (*take)(struct arguments *arguments, const struct option_row *row, const char *text);
	const char *help; /* one line */
};

/* The options that every command takes. Ends with a row without a name. */
extern const struct option_row global_options[];

/* Which socket a command needs. */
enum command_socket {
	SOCKET_ANY, /* admin.sock. Users who are no operators use the workers' socket */
	SOCKET_ADMIN,
	SOCKET_NONE, /* run gets no client. It may connect by itself: see connect.h */
};

struct command {
	const char *name; /* NULL ends a list */
	const char *also; /* another name, or NULL */
	struct command_word words[POSITIONALS_MAX];
	const char *summary; /* one line of the list of commands: at most SUMMARY_COLUMNS */
	const char *about; /* what its own help says besides, or NULL */
	const struct option_row *options; /* NULL: none */
	const char *required; /* the name of an option that must be given, or NULL */
	const char *example; /* a whole command line; several are separated by newlines */
	enum command_socket socket;
	bool no_names; /* its result has no references: -o name is refused */
	bool raw; /* its words and options are another command line's: run finds them in arguments->left */
	bool hidden; /* for programs: the list of commands leaves it out */
	int (*run)(struct gpuwm_client *client, const struct arguments *arguments);
};

/* The most rows that the global options and a command's own have together. tests/unit/ctl_catalog.c checks these limits for every
 * command. */
#define OPTION_ROWS_MAX 32
#define USAGE_MAX 1024
#define SUMMARY_COLUMNS 66 /* 80 without the indent and the column of names */

/* "load SOURCE MODEL@TAG [--device DEVICE]..." */
const char *usage_text(const struct command *command, char ret_text[USAGE_MAX]);

#endif
