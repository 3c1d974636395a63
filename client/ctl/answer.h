/* What gpuwmd answers, as JSON. */
#ifndef GPUWM_CTL_ANSWER_H
#define GPUWM_CTL_ANSWER_H

#include <gpuwm/client.h>

#include "arguments.h"

#include <jansson.h>

/* Asks (gpuwm_query) and parses. EXIT_DONE with *ret_answer for json_decref, or an exit code after printing why. */
int answer_get(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer);
/* The same for a command that shows the answer: with -o json, prints the text as it came, else calls `show`, which returns an
 * exit code. */
int answer_show(struct gpuwm_client *client, const struct arguments *arguments, const char *method,
		const char *filter, int (*show)(const json_t *answer));
/* The job as `jobs` tells it, for json_decref. The same results. */
int answer_job(struct gpuwm_client *client, uint64_t job, json_t **ret_job);
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
/* "WHAT: MESSAGE (DETAIL)" for an object with an error under this key; nothing otherwise.
 * Errors stand below their table: they do not fit a column. */
void answer_error_print(const json_t *object, const char *key, const char *what);

#endif
