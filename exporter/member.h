/* What the exporter asks gpuwmd, and members of the answers of gpuwmd. An answer that lacks a member, because gpuwmd is older, reads as "",
 * 0, false or an empty array. */
#ifndef GPUWM_EXPORTER_MEMBER_H
#define GPUWM_EXPORTER_MEMBER_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

enum question { ASK_STATUS, ASK_LIST, ASK_CLIENTS, ASK_JOBS, ASK_REGIONS, ASK_METRICS, QUESTIONS };
/* The names of the methods, each for gpuwm_query. */
extern const char *const question_names[QUESTIONS];

const char *member_text(const json_t *object, const char *key);
uint64_t member_number(const json_t *object, const char *key);
bool member_true(const json_t *object, const char *key);
/* Returns whether the object has the member, and it is not null. */
bool member_has(const json_t *object, const char *key);
bool member_is(const json_t *object, const char *key, const char *text);

#endif
