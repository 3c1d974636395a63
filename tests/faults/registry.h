/* What gpuwmd's answers say it has, and the calls that change it. */
#ifndef GPUWM_FAULTS_REGISTRY_H
#define GPUWM_FAULTS_REGISTRY_H

#include "stack.h"

/* The answer to `status`, `list` and the like; NULL: an error. json_decref it. */
json_t *ask(struct gpuwm_client *client, const char *method);
const char *text_of(const json_t *object, const char *key);
uint64_t number_of(const json_t *object, const char *key);

/* Of MODEL: this tag is ready; the alias names it; it has the pin. */
bool version_ready(struct gpuwm_client *client, const char *tag);
bool alias_names(struct gpuwm_client *client, const char *alias, const char *tag);
bool pin_is_there(struct gpuwm_client *client, const char *tag, const char *pin);
bool any_is_tainted(struct gpuwm_client *client);
/* Descriptors of versions in the answer to `list`: an index and its segments a part. */
size_t fds_held(const json_t *list);

/* Loads this content and waits for the end of the job. */
int load_named(const struct stack *s, struct gpuwm_client *client, unsigned content, const char *name);
/* Moves an alias of MODEL, or removes it (`to` NULL). */
int swap_alias(struct gpuwm_client *client, const char *alias, const char *to);

#endif
