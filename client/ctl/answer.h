/* What gpuwmd answers, as JSON, and the devices in it. */
#ifndef GPUWM_CTL_ANSWER_H
#define GPUWM_CTL_ANSWER_H

#include <gpuwm/client.h>

#include "arguments.h"
#include "exit.h"
#include "table.h"

#include <jansson.h>

/* Asks (gpuwm_query) and parses, and prints nothing. Returns 0 with *ret_answer for json_decref, or what gpuwm_query returned;
 * -EILSEQ: the answer is not JSON, or memory was short. */
int answer_ask(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer);
/* The same, and prints why it failed. EXIT_DONE with *ret_answer for json_decref, or an exit code after printing why. */
int answer_get(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer);
/* The job as `jobs` tells it, for json_decref. The same results. */
int answer_job(struct gpuwm_client *client, uint64_t job, json_t **ret_job);

/* How a result looks to people and to shells. Programs get it as it is. */
struct view {
	int (*show)(const json_t *result); /* table and wide: prints, and returns an exit code */
	/* -o name: makes the reference that other commands take, of each member of the array `rows`, or (NULL) of the result
	 * itself. "": there is none. */
	cell_fn *name;
	const char *key; /* for name */
	const char *rows;
};
/* Shows the result of a command in the form that the user asked for, and gives it back to jansson. NULL: memory was short.
 * Returns an exit code. */
int result_show(json_t *result, const struct view *view);
/* answer_get and result_show. */
int answer_show(struct gpuwm_client *client, const char *method, const char *filter, const struct view *view);
/* Prints `object` as one document of JSON, and gives it back to jansson. */
int answer_print(json_t *object);

/* Members of an answer; "" or 0 where there is none. */
const char *answer_text(const json_t *object, const char *key);
uint64_t answer_number(const json_t *object, const char *key);

/* The first member of the array `rows` that has this text under `key`; NULL: there is none. */
const json_t *answer_find(const json_t *object, const char *rows, const char *key, const char *text);
/* A version's object in a list, by its id; NULL: it is gone. */
const json_t *answer_version(const json_t *list, const char *id);
/* The names of a version's aliases in a list, as an array for json_decref. */
json_t *answer_aliases(const json_t *list, const json_t *version);
/* An alias of a model in a list; NULL: there is none. */
const json_t *answer_alias_listed(const json_t *list, const char *model, const char *alias);
/* What an alias of a model names in a list, as an id or "". */
const char *answer_alias(const json_t *list, const char *model, const char *alias);
/* What a reference names in a list, as an id or ""; gpuwmd judges what is wrong with it. */
const char *answer_ref(const json_t *list, const char *ref);

/* Whether MODEL@TAG names the version. A failed version has given its tag up, and so has a cached one that is retired:
 * another one may have it. A version without a name never had one. */
bool answer_has_tag(const json_t *version);
/* "v1" for people; the id where the version is gone from the list. */
const char *answer_tag(const json_t *list, const char *id);
/* Joins an array of texts with commas, "..." after as many as fit; "" for none. size is 5 at least. */
void answer_join(const json_t *texts, char *ret_text, size_t size);
/* "WHAT: MESSAGE (DETAIL)" for an object with an error under this key; nothing otherwise.
 * Errors stand below their table: they do not fit a column. */
void answer_error_print(const json_t *object, const char *key, const char *what);

/* Tells an error of an answer as this command's own error. what: stands before the message, "" for nothing. Returns code. */
enum exit_code answer_error_tell(const json_t *error, enum exit_code code, const char *what);

/* ---- devices as people write and read them ---- */

/* What people may write for a device: "host", a GPU's UUID or its beginning
 * where that is enough, or "cuda:N", the N-th GPU in the daemon's order.
 * What none of gpuwmd's devices matches is left as it is, for gpuwmd to refuse.
 * EXIT_DONE with a text that lives as long as the client and `text`, or an exit
 * code after printing why. */
int device_resolve(struct gpuwm_client *client, const char *text, const char **ret_device);
#define DEVICE_TEXT 64 /* a UUID, and more */
/* A UUID's first digits, enough for people, and all of it with -o wide; others as they are. */
void device_short(const char *device, char ret_text[DEVICE_TEXT]);
/* The same for an array of them, joined with commas, as many as fit. */
void device_short_join(const json_t *devices, char *ret_text, size_t size);

#endif
