#include "registry.h"

#include <stdlib.h>
#include <string.h>

json_t *ask(struct gpuwm_client *client, const char *method)
{
	json_t *answer;
	char *text;

	if (gpuwm_query(client, method, NULL, &text) < 0)
		return NULL;
	answer = json_loads(text, 0, NULL);
	free(text);
	return answer;
}

const char *text_of(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

uint64_t number_of(const json_t *status, const char *key)
{
	const json_t *value = json_object_get(status, key);

	return json_is_boolean(value) ? json_is_true(value) : (uint64_t)json_integer_value(value);
}

/* The entry of `list`, whose answer the caller drops. */
static json_t *find_version(json_t *list, const char *tag)
{
	json_t *entry, *found = NULL;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		if (strcmp(text_of(entry, "tag"), tag) == 0)
			found = entry; /* a failed one comes before its successor */
	}
	return found;
}

bool version_ready(struct gpuwm_client *client, const char *tag)
{
	json_t *list = ask(client, "list");
	bool ready = strcmp(text_of(find_version(list, tag), "state"), "ready") == 0;

	json_decref(list);
	return ready;
}

bool any_is_tainted(struct gpuwm_client *client)
{
	json_t *list = ask(client, "list"), *entry;
	bool tainted = false;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, entry)
		tainted |= json_object_get(entry, "tainted") != NULL;
	json_decref(list);
	return tainted;
}

bool alias_names(struct gpuwm_client *client, const char *alias, const char *tag)
{
	json_t *list = ask(client, "list"), *entry;
	const char *id = text_of(find_version(list, tag), "version");
	bool names = false;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, entry)
		names |= strcmp(text_of(entry, "alias"), alias) == 0 &&
			 strcmp(text_of(entry, "version"), id) == 0;
	json_decref(list);
	return names;
}

bool pin_is_there(struct gpuwm_client *client, const char *tag, const char *pin)
{
	json_t *list = ask(client, "list"), *entry;
	bool there = false;
	size_t i;

	json_array_foreach(json_object_get(find_version(list, tag), "pins"), i, entry) {
		const char *name = json_is_string(entry) ? json_string_value(entry) : text_of(entry, "pin");

		there |= strcmp(name, pin) == 0;
	}
	json_decref(list);
	return there;
}

size_t fds_held(const json_t *list)
{
	json_t *entry, *part;
	size_t i, j, count = 0;

	json_array_foreach(json_object_get(list, "versions"), i, entry) {
		json_array_foreach(json_object_get(entry, "parts"), j, part) {
			const char *state = text_of(part, "state");

			if (state[0] && strcmp(state, "failed") != 0)
				count += 1 + (size_t)json_integer_value(json_object_get(part, "segments"));
		}
	}
	return count;
}

int load_named(const struct stack *s, struct gpuwm_client *client, unsigned content, const char *name)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;
	int r;

	options.source = stack_source(s, content);
	options.name = name;
	r = gpuwm_load(client, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(client, job, LIMIT_MS);
}

int swap_alias(struct gpuwm_client *client, const char *alias, const char *to)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = MODEL;
	options.alias = alias;
	options.to = to;
	return gpuwm_swap(client, &options, NULL);
}
