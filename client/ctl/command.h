/* What a command of gpuwmctl is: its words, its options and their values, its help; and how it is checked, connected,
 * watched and limited. Each command has its row in its own file, with its options and what they set; catalog/ lists them. */
#ifndef GPUWM_CTL_COMMAND_H
#define GPUWM_CTL_COMMAND_H

#include "arguments.h"

#include "../../service/option.h"

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
	/* What options take, by the kind of their rows: */
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

/* The options that every command takes. Ends with a row without a name. */
extern const struct option_row global_options[];

/* Which socket a command needs. */
enum command_socket {
	SOCKET_ANY, /* admin.sock. Users who are no operators use the workers' socket */
	SOCKET_ADMIN,
	SOCKET_NONE, /* run gets no client. It may connect by itself: see connect_as */
};

/* Prints the result, and returns an exit code. */
typedef int command_fn(struct gpuwm_client *client, const struct arguments *arguments);

struct command {
	const char *name;
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
	command_fn *run;
};

/* tests/unit/ctl_catalog.c checks these limits for every command. */
#define USAGE_MAX 1024
#define SUMMARY_COLUMNS 66 /* 80 without the indent and the column of names */

/* "load SOURCE MODEL@TAG [--device DEVICE]..." */
const char *usage_text(const struct command *command, char ret_text[USAGE_MAX]);

/* ---- checks, before it runs ---- */

/* Checks that no word is missing or too many. EXIT_DONE, or EXIT_USAGE after printing what is wrong. */
int words_count(const struct command *command, const struct arguments *arguments);

/* Checks the words, of the kinds that the command says. EXIT_DONE, or EXIT_USAGE after printing which word can't be what the
 * command takes, and what that looks like. */
int words_check(const struct command *command, const struct arguments *arguments);
/* The same for one name: 0, or -EINVAL with *error. */
int name_check(const char *text, struct error *error);

/* ---- connecting to gpuwmd ---- */

/* Connects to the socket that `need` says (SOCKET_NONE: as SOCKET_ANY). Returns what gpuwm_connect returns; gpuwm_close
 * ends the client.
 * Connecting may take until arguments->deadline_ms, or 30 seconds. If gpuwmd does not answer at once, says so on stderr. */
int connect_as(const struct arguments *arguments, enum command_socket need, struct gpuwm_client **ret_client);

/* While connect_as waits for a gpuwmd that has not answered at once, it calls this function, which says more. It is called once for
 * each socket, and not for completions. NULL: none. */
void connect_explain_by(void (*explain)(const struct arguments *arguments));

/* ---- --watch: it runs again and again, at each event of gpuwmd and at an interval ----
 * Its result may have changed, and ages grow. */

/* Runs the command until the user presses q or Ctrl-C, or the command fails. On a terminal its result is drawn in one place.
 * Elsewhere, and as data, each result that differs from the last one is appended. Returns the command's exit code, or
 * EXIT_DONE after q. */
int watch(struct gpuwm_client *client, const struct arguments *arguments, command_fn *run);

/* ---- what options take: numbers, times, sizes, names ----
 * Each function is the `take` of rows, with what their `into` is. data: struct arguments. */

/* Of the options of every command. */
option_take_fn take_socket, take_output, take_help, take_version;

/* Of an option that repeats. */
struct option_texts {
	const char *texts[DEVICES_MAX];
	size_t count;
};
struct option_key {
	struct gpuwm_key_field fields[KEY_FIELDS_MAX];
	size_t count;
};

/* const char *: one that is not empty; a name; a version id. */
option_take_fn take_filled, take_name, take_version_id;
/* struct option_texts: texts that are not empty, at most `most`. */
option_take_fn take_texts;
/* struct option_key: FIELD=VALUE. */
option_take_fn take_key;
/* struct option_number: a number from `least` to `most`; a time up to `most`. */
option_take_fn take_number, take_time;
/* uint64_t: a size above 0, such as 2G. */
option_take_fn take_size;
/* A time, the limit of the whole call: arguments->limit. */
option_take_fn take_timeout;
/* bool: the option is given, and SECONDS are that limit. */
option_take_fn take_wait_seconds;
/* A user's number, or name, into a struct option_number. */
option_take_fn take_user;

/* --device of a command that takes one; it says what it does with it. device: a const char *. */
#define ROW_DEVICE(device, does)                                                                               \
	{                                                                                                      \
		.name = "device", .value = "DEVICE", .take = take_filled, .into = &(device),                   \
		.kind = WORD_DEVICE, .help = (does),                                                           \
	}
/* --rank of a part. rank: a struct option_number. */
#define ROW_RANK(rank)                                                                                         \
	{                                                                                                      \
		.name = "rank", .value = "N", .take = take_number, .into = &(rank), .most = UINT32_MAX,        \
		.help = "the part of this rank (default 0)",                                                   \
	}

/* --watch of a command that lists. */
option_take_fn take_watch;
#define ROW_WATCH                                                                                              \
	{                                                                                                      \
		.name = "watch", .value = "[SECONDS]", .take = take_watch,                                     \
		.help = "show it again at each event, and every SECONDS (default 2); q or Ctrl-C ends it",     \
	}

/* ---- a limit of time for calls of the library that have none of their own ----
 * An answer of gpuwmd may take CALL_TIMEOUT_MS. */

/* When a request that is made now is given up: ANSWER_SLACK_MS after the deadline, or after now if the deadline has passed. So a gpuwmd
 * that is well answers the last request of a command, and that of a command whose limit is 0. */
int64_t bound_deadline(int64_t deadline_ms);

/* If bound_end is not called until bound_deadline(arguments->deadline_ms), prints that gpuwmd does not answer, and ends gpuwmctl with
 * EXIT_TIMEOUT. in_doubt: which change may have been made by then, and how the user finds out; NULL: what is between the two calls
 * only asks. Does nothing if there is no deadline. EXIT_DONE, or an exit code after printing why there is no such limit. */
int bound_begin(const struct arguments *arguments, const char *in_doubt);
void bound_end(void);

#endif
