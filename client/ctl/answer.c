#include "answer.h"

#include "exit.h"
#include "../../proto/errors.h"
#include "../../proto/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* *ret_text: what came, for free(). */
static int answer_parse(struct gpuwm_client *client, const char *method, const char *filter,
			json_t **ret_answer, char **ret_text)
{
	json_error_t error;
	char *text;

	if (gpuwm_query(client, method, filter, &text) < 0)
		return exit_with_error();
	*ret_answer = json_loads(text, JSON_ALLOW_NUL, &error);
	if (*ret_answer) {
		*ret_text = text;
		return EXIT_DONE;
	}
	free(text);
	return exit_with(EXIT_FAILED, NULL, "gpuwmd's answer to %s is not JSON: %s", method, error.text);
}

int answer_get(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer)
{
	char *text = NULL;
	int code = answer_parse(client, method, filter, ret_answer, &text);

	free(text);
	return code;
}

int answer_show(struct gpuwm_client *client, const struct arguments *arguments, const char *method,
		const char *filter, int (*show)(const json_t *answer))
{
	char *text = NULL;
	json_t *answer;
	int code = answer_parse(client, method, filter, &answer, &text);

	if (code == EXIT_DONE) {
		if (arguments->json)
			puts(text);
		else
			code = show(answer);
		json_decref(answer);
	}
	free(text);
	return code;
}

int answer_job(struct gpuwm_client *client, uint64_t job, json_t **ret_job)
{
	char number[24];
	json_t *jobs;
	int code;

	snprintf(number, sizeof(number), "%" PRIu64, job);
	code = answer_get(client, "jobs", number, &jobs);
	if (code != EXIT_DONE)
		return code;
	*ret_job = json_incref(json_array_get(json_object_get(jobs, "jobs"), 0));
	json_decref(jobs);
	return EXIT_DONE;
}

int answer_print(json_t *object)
{
	int failed = !object || json_dumpf(object, stdout, JSON_COMPACT) < 0;

	json_decref(object);
	if (failed)
		return exit_with(EXIT_FAILED, NULL, "can't write the result as JSON");
	putchar('\n');
	return EXIT_DONE;
}

const char *answer_text(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text ? text : "";
}

uint64_t answer_number(const json_t *object, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(object, key));
}

const char *answer_tag(const json_t *list, const char *id)
{
	const json_t *version = answer_version(list, id);

	return version ? answer_text(version, "tag") : id;
}

void answer_join(const json_t *texts, char *ret_text, size_t size)
{
	static const char more[] = ",...";
	size_t length = 0, i;
	const json_t *item;

	ret_text[0] = '\0';
	json_array_foreach(texts, i, item) {
		const char *text = json_string_value(item);
		int written =
			snprintf(ret_text + length, size - length, "%s%s", length ? "," : "", text ? text : "");

		/* The beginning of a name would look like another one. */
		if (written < 0 || (size_t)written + sizeof(more) > size - length) {
			strcpy(ret_text + length, length ? more : more + 1);
			return;
		}
		length += (size_t)written;
	}
}

const json_t *answer_version(const json_t *list, const char *id)
{
	const json_t *version;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "version"), id) == 0)
			return version;
	}
	return NULL;
}

const char *answer_alias(const json_t *list, const char *model, const char *alias)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, item) {
		if (strcmp(answer_text(item, "model"), model) == 0 &&
		    strcmp(answer_text(item, "alias"), alias) == 0)
			return answer_text(item, "version");
	}
	return "";
}

/* A failed version has given its tag up, and so has a cached one that is retired: another one may have it. */
static bool has_tag(const json_t *version)
{
	const char *state = answer_text(version, "state");

	if (strcmp(state, "retiring") == 0)
		return !json_is_true(json_object_get(version, "cached"));
	return strcmp(state, "failed") != 0;
}

const char *answer_ref(const json_t *list, const char *ref)
{
	const json_t *items;
	const json_t *item;
	char name[600];
	size_t i;

	if (answer_version(list, ref))
		return ref;
	items = json_object_get(list, "aliases");
	json_array_foreach(items, i, item) {
		snprintf(name, sizeof(name), "%s@%s", answer_text(item, "model"), answer_text(item, "alias"));
		if (strcmp(name, ref) == 0 || (strcmp(answer_text(item, "alias"), "current") == 0 &&
					       strcmp(answer_text(item, "model"), ref) == 0))
			return answer_text(item, "version");
	}
	items = json_object_get(list, "versions");
	json_array_foreach(items, i, item) {
		snprintf(name, sizeof(name), "%s@%s", answer_text(item, "model"), answer_text(item, "tag"));
		if (has_tag(item) && strcmp(name, ref) == 0)
			return answer_text(item, "version");
	}
	return "";
}

void answer_error_print(const json_t *object, const char *key, const char *what)
{
	const json_t *error = json_object_get(object, key);
	char message[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)], detail[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)];

	if (!json_is_object(error))
		return;
	utf8_show(answer_text(error, "message"), message, sizeof(message));
	utf8_show(answer_text(error, "detail"), detail, sizeof(detail));
	printf("%s: %s%s%s%s\n", what, message, *detail ? " (" : "", detail, *detail ? ")" : "");
}
