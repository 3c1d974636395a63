/* gpuwmctl: what its files share. A command is a row in the table of main.c and
 * a function in the file of its group; it gets a connected client and checked
 * arguments, prints to stdout, and returns an exit code. */
#ifndef GPUWM_CTL_H
#define GPUWM_CTL_H

#include <gpuwm/client.h>

#include <jansson.h>

#include "../../proto/errors.h"
#include "../../proto/utf8.h"
#include "exit.h"
#include "table.h"

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
	const char *alias, *expect, *load;
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

/* What a positional argument is. */
enum word_kind {
	WORD_ANY,
	WORD_REF, /* MODEL, MODEL@TAG, MODEL@ALIAS, a version id */
	WORD_NEW, /* MODEL@TAG of a version that is to be */
	WORD_ALIAS_OF, /* MODEL[@ALIAS] */
	WORD_MODEL, /* MODEL alone */
	WORD_NAME,
	WORD_TARGET, /* a tag, an alias, a version id */
};

struct command {
	const char *name, *alias; /* alias: another name, or NULL */
	const char *usage; /* with the name; as in the man page */
	const char *help; /* one line */
	int positional_min, positional_max;
	enum word_kind first, second;
	unsigned options; /* bits of command_option */
	bool admin; /* on admin.sock only; others where that lets nobody in: on the workers' socket */
	int (*run)(struct gpuwm_client *client, const struct arguments *arguments);
};

/* EXIT_DONE, or EXIT_USAGE after printing which word can't be what the command takes, and what that looks like.
 * (words.c) */
int words_check(const struct command *command, const struct arguments *arguments);

int command_status(struct gpuwm_client *client, const struct arguments *arguments);
int command_ls(struct gpuwm_client *client, const struct arguments *arguments);
int command_show(struct gpuwm_client *client, const struct arguments *arguments);
int command_ps(struct gpuwm_client *client, const struct arguments *arguments);
int command_clients(struct gpuwm_client *client, const struct arguments *arguments);
int command_ping(struct gpuwm_client *client, const struct arguments *arguments);
int command_load(struct gpuwm_client *client, const struct arguments *arguments);
int command_verify(struct gpuwm_client *client, const struct arguments *arguments);
int command_jobs(struct gpuwm_client *client, const struct arguments *arguments);
int command_cancel(struct gpuwm_client *client, const struct arguments *arguments);
int command_swap(struct gpuwm_client *client, const struct arguments *arguments);
int command_replace(struct gpuwm_client *client, const struct arguments *arguments); /* swap --load */
int command_rollback(struct gpuwm_client *client, const struct arguments *arguments);
int command_pin(struct gpuwm_client *client, const struct arguments *arguments);
int command_unpin(struct gpuwm_client *client, const struct arguments *arguments);
int command_retire(struct gpuwm_client *client, const struct arguments *arguments);
int command_rm(struct gpuwm_client *client, const struct arguments *arguments);
int command_kick(struct gpuwm_client *client, const struct arguments *arguments);
int command_drain(struct gpuwm_client *client, const struct arguments *arguments);
int command_reload(struct gpuwm_client *client, const struct arguments *arguments);
int command_events(struct gpuwm_client *client, const struct arguments *arguments);

/* ---- answers (answer.c) ----------------------------------------------- */

/* Asks (gpuwm_query) and parses. With -o json, prints the text as it came.
 * EXIT_DONE with *ret_answer for json_decref, or an exit code after printing why. */
int answer_query(struct gpuwm_client *client, const struct arguments *arguments, const char *method,
		 const char *filter, json_t **ret_answer);
/* Prints `object` on one line and gives it back to jansson. EXIT_DONE. */
int answer_print(json_t *object);

/* Members of an answer; "" or 0 where there is none. */
const char *answer_text(const json_t *object, const char *key);
uint64_t answer_number(const json_t *object, const char *key);

/* A version's object in a list, by its id; NULL: it is gone. */
const json_t *answer_version(const json_t *list, const char *id);
/* What an alias of a model names in a list, as an id or "". */
const char *answer_alias(const json_t *list, const char *model, const char *alias);
/* What a reference names in a list, as an id or ""; gpuwmd judges what is wrong with it. */
const char *answer_ref(const json_t *list, const char *ref);

/* "v1" for people; the id where the version is gone from the list. */
const char *answer_tag(const json_t *list, const char *id);
/* Joins an array of texts with commas, "..." after as many as fit; "" for none. size is 5 at least. */
void answer_join(const json_t *texts, char *ret_text, size_t size);
/* The cell "MODEL@TAG" of an object that has both. */
void answer_name_cell(struct table *table, const json_t *object);
/* "WHAT: MESSAGE (DETAIL)" for an object with an error under this key; nothing otherwise.
 * Errors stand below their table: they do not fit a column. */
void answer_error_print(const json_t *object, const char *key, const char *what);

/* ---- versions (cmd_version.c) ------------------------------------------ */

struct swap_outcome {
	char old[33]; /* the id of the version that the alias named before; "": none */
	bool retire_old; /* the caller asked to retire that version */
	struct error kept; /* code 0, or why gpuwmd could not retire that version */
};
/* Calls gpuwm_swap and sets *ret_outcome. Returns 0 or the error of gpuwm_swap. */
int version_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options,
		 struct swap_outcome *ret_outcome);
/* Prints which version an alias names now, and what became of the version that it named before. before, list: the answers
 * to `list` before and after the swap. A version that was freed is only in the first one. */
void swap_tell(const json_t *before, const json_t *list, const char *model, const char *alias,
	       const struct swap_outcome *outcome);
/* Returns outcome->kept as JSON, for json_pack to take over; NULL: there is no such error. */
json_t *swap_kept_json(const struct swap_outcome *outcome);
/* Prints to stderr why the old version was not retired. Returns the exit code of the command: EXIT_DONE, unless the user
 * asked for the retirement with --retire-old. */
int swap_judge(const struct arguments *arguments, const struct swap_outcome *outcome);
/* gpuwm_retire; after_ms: gpuwm_retire_by_force; NULL: without force. id: the version's, "": not known; with it, one
 * that gpuwmd took and did not answer is asked for once more. */
int version_retire(struct gpuwm_client *client, const char *ref, const char *id, const uint64_t *after_ms,
		   int64_t wait_ms);

/* ---- jobs (cmd_jobs.c) ------------------------------------------------ */

/* A job's phases with their times, the notes of its loader. */
int job_course_print(const json_t *job);
/* Prints the notes of the job's loader, a line each. */
void job_notes_print(const json_t *job);
/* The plan of a dry run. */
int job_plan_print(const json_t *job);
/* EXIT_DONE, or EXIT_NO_ROOM after saying where it does not fit. */
int job_plan_judge(const json_t *job);

/* Leases with what is known of their holders, of the version with this id or (NULL) of all. EXIT_DONE with
 * *ret_leases for json_decref, or an exit code after printing why. (cmd_look.c) */
int leases_query(struct gpuwm_client *client, const char *version, json_t **ret_leases);
int leases_print(const json_t *leases);

/* ---- devices (device.c) ----------------------------------------------- */

/* What people may write for a device: "host", a GPU's UUID or its beginning
 * where that is enough, or "cuda:N", the N-th GPU in the daemon's order.
 * What none of gpuwmd's devices matches is left as it is, for gpuwmd to refuse.
 * EXIT_DONE with a text that lives as long as the client and `text`, or an exit
 * code after printing why. */
int device_resolve(struct gpuwm_client *client, const char *text, const char **ret_device);
/* The same for each --device. */
int device_resolve_all(struct gpuwm_client *client, const struct arguments *arguments,
		       const char *ret_devices[DEVICES_MAX]);
/* A UUID's first digits, enough for people; others as they are. */
void device_short(const char *device, char ret_text[16]);
/* The same for an array of them, joined with commas, as many as fit. */
void device_short_join(const json_t *devices, char *ret_text, size_t size);

#endif
