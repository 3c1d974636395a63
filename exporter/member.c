#include "snapshot.h"

#include <string.h>

const char *const question_names[QUESTIONS] = {
	[ASK_STATUS] = "status", [ASK_LIST] = "list",           [ASK_CLIENTS] = "clients",
	[ASK_JOBS] = "jobs",     [ASK_REGIONS] = "region_list", [ASK_METRICS] = "metrics",
};

const char *member_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

uint64_t member_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

bool member_true(const json_t *object, const char *key)
{
	return json_is_true(json_object_get(object, key));
}

bool member_has(const json_t *object, const char *key)
{
	const json_t *member = json_object_get(object, key);

	return member && !json_is_null(member);
}

bool member_is(const json_t *object, const char *key, const char *text)
{
	return strcmp(member_text(object, key), text) == 0;
}
