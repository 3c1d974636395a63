#include "answer.h"

#include "exit.h"
#include "line.h"
#include "output.h"
#include "../../base/errors.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int answer_ask(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer)
{
	json_t *answer;
	char *text;
	int r = gpuwm_query(client, method, filter, &text);

	if (r < 0)
		return r;
	answer = json_loads(text, JSON_ALLOW_NUL, NULL);
	free(text);
	if (!answer)
		return -EILSEQ;
	*ret_answer = answer;
	return 0;
}

int answer_get(struct gpuwm_client *client, const char *method, const char *filter, json_t **ret_answer)
{
	int r = answer_ask(client, method, filter, ret_answer);

	if (r == -EILSEQ)
		return exit_with(EXIT_FAILED, NULL, "gpuwmd's answer to %s is not JSON, or memory was short",
				 method);
	return r < 0 ? exit_with_error() : EXIT_DONE;
}

int answer_show(struct gpuwm_client *client, const char *method, const char *filter, const struct view *view)
{
	json_t *answer;
	int code = answer_get(client, method, filter, &answer);

	return code == EXIT_DONE ? result_show(answer, view) : code;
}

/* ---- results --------------------------------------------------------------- */

static void name_print(const json_t *row, const struct view *view)
{
	char text[CELL_TEXT], shown[UTF8_SHOWN_MAX(CELL_TEXT)];

	utf8_show(view->name(row, view->key, text), shown, sizeof(shown));
	if (shown[0])
		puts(shown);
}

int result_show(json_t *result, const struct view *view)
{
	const json_t *row;
	int code = EXIT_DONE;
	size_t i;

	if (!result)
		return exit_with(EXIT_FAILED, NULL, "out of memory for the result");
	if (output_is_data())
		return answer_print(result);
	if (output_form() != OUTPUT_NAME) {
		code = view->show(result);
	} else if (!view->rows) {
		name_print(result, view);
	} else {
		json_array_foreach(json_object_get(result, view->rows), i, row) {
			name_print(row, view);
		}
	}
	json_decref(result);
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
	int failed = !object || output_write(stdout, object) < 0;

	json_decref(object);
	return failed ? (int)exit_with(EXIT_FAILED, NULL, "can't write the result") : EXIT_DONE;
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

const json_t *answer_find(const json_t *object, const char *rows, const char *key, const char *text)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(object, rows), i, item) {
		if (strcmp(answer_text(item, key), text) == 0)
			return item;
	}
	return NULL;
}

const json_t *answer_version(const json_t *list, const char *id)
{
	return answer_find(list, "versions", "version", id);
}

json_t *answer_aliases(const json_t *list, const json_t *version)
{
	json_t *names = json_array();
	const json_t *alias;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, alias) {
		if (strcmp(answer_text(alias, "version"), answer_text(version, "version")) == 0)
			json_array_append(names, json_object_get(alias, "alias"));
	}
	return names;
}

const json_t *answer_alias_listed(const json_t *list, const char *model, const char *alias)
{
	const json_t *item;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, item) {
		if (strcmp(answer_text(item, "model"), model) == 0 &&
		    strcmp(answer_text(item, "alias"), alias) == 0)
			return item;
	}
	return NULL;
}

const char *answer_alias(const json_t *list, const char *model, const char *alias)
{
	return answer_text(answer_alias_listed(list, model, alias), "version");
}

bool answer_has_tag(const json_t *version)
{
	const char *state = answer_text(version, "state");

	if (answer_text(version, "model")[0] == '~' || !*answer_text(version, "tag"))
		return false;
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
		if (answer_has_tag(item) && strcmp(name, ref) == 0)
			return answer_text(item, "version");
	}
	return "";
}

void answer_error_print(const json_t *object, const char *key, const char *what)
{
	const json_t *error = json_object_get(object, key);
	const char *detail = answer_text(error, "detail");

	if (json_is_object(error))
		say("%s: %s%s%s%s", what, answer_text(error, "message"), *detail ? " (" : "", detail,
		    *detail ? ")" : "");
}

enum exit_code answer_error_tell(const json_t *error, enum exit_code code, const char *what)
{
	char message[2 * TEXT_BYTES_MAX];

	snprintf(message, sizeof(message), "%s%s%s", what, *what ? ": " : "", answer_text(error, "message"));
	return exit_tell(code, error_code(answer_text(error, "code")), message, answer_text(error, "detail"));
}
