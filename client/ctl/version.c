#include "version.h"

#include "exit.h"
#include "line.h"
#include "table.h"

#include "../../base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* ---- swap -------------------------------------------------------------- */

int version_swap(struct gpuwm_client *client, const struct gpuwm_swap_options *options,
		 struct swap_outcome *ret_outcome)
{
	struct swap_outcome outcome = {.retire_old = options->retire_old};
	const struct gpuwm_error *kept;
	int r = gpuwm_swap(client, options, outcome.old);

	if (r < 0)
		return r;
	if (r > 0) {
		kept = gpuwm_error();
		error_set(&outcome.kept, kept->code, kept->detail, "%s", kept->message);
	}
	*ret_outcome = outcome;
	return 0;
}

/* MODEL@TAG of the version with this id, which one of the lists has; null: there is no version. */
static json_t *name_json(const json_t *list, const json_t *before, const char *id)
{
	const json_t *version = answer_version(list, id);
	char name[CELL_TEXT];

	if (!*id)
		return json_null();
	version = version ? version : answer_version(before, id);
	return json_string(version ? cell_name(version, NULL, name) : id);
}

json_t *swap_result(const json_t *before, const json_t *list, const char *model, const char *alias,
		    const struct swap_outcome *outcome)
{
	const char *now = answer_alias(list, model, alias), *old = outcome->old;
	const struct error *error = &outcome->kept;
	const json_t *version = answer_version(list, old);
	json_t *kept = error->code ? json_pack("{s:s, s:s, s:s}", "code", error_name(error->code), "message",
					       error->message, "detail", error->detail)
				   : json_null();
	json_t *result = json_pack("{s:s, s:s, s:b, s:s?, s:o, s:s?, s:o, s:o}", "model", model, "alias", alias,
				   "changed", strcmp(old, now) != 0, "version", *now ? now : NULL, "name",
				   name_json(list, before, now), "old", *old ? old : NULL, "old_name",
				   name_json(list, before, old), "retire_error", kept);

	if (!result || !*old || strcmp(old, now) == 0 || !outcome->retire_old)
		return result;
	/* What became of the version that was to be retired. */
	json_object_set_new(result, "old_state",
			    json_string(version ? answer_text(version, "state") : "freed"));
	json_object_set_new(result, "old_leases", json_integer((json_int_t)answer_number(version, "leases")));
	json_object_set_new(result, "old_pins",
			    json_integer((json_int_t)json_array_size(json_object_get(version, "pins"))));
	return result;
}

/* "v1" of MODEL@v1. */
static const char *tag_of(const json_t *result, const char *key)
{
	const char *name = answer_text(result, key), *at = strrchr(name, '@');

	return at ? at + 1 : name;
}

/* Returns the number of leases that keep a retired version from being freed. */
static uint64_t retired_say(struct line *line, const json_t *result)
{
	const char *state = answer_text(result, "old_state");
	const uint64_t leases = answer_number(result, "old_leases"), pins = answer_number(result, "old_pins");
	char held[HOLDERS_TEXT];

	if (strcmp(state, "freed") == 0)
		line_add(line, ", which is retired and freed");
	else if (strcmp(state, "ready") == 0)
		line_add(line, ", which is not retired");
	else
		line_add(line, ", which is retired%s%s", leases + pins > 0 ? ": " : "",
			 leases + pins > 0 ? holders_text(leases, pins, held) : "");
	return strcmp(state, "retiring") == 0 ? leases : 0;
}

int swap_print(const json_t *result)
{
	const char *model = answer_text(result, "model"), *alias = answer_text(result, "alias");
	const bool named = *answer_text(result, "version");
	struct line line = {0};
	uint64_t leases = 0;

	if (named && !json_is_true(json_object_get(result, "changed"))) {
		say("unchanged: %s@%s is %s already", model, alias, tag_of(result, "name"));
		return EXIT_DONE;
	}
	line_add(&line, "%s@%s is %s%s", model, alias, named ? "now " : "removed",
		 named ? tag_of(result, "name") : "");
	if (*answer_text(result, "old"))
		line_add(&line, "; it was %s", tag_of(result, "old_name"));
	if (*answer_text(result, "old_state"))
		leases = retired_say(&line, result);
	line_say(&line);
	if (leases > 0)
		say("gpuwmctl ps lists the leases; gpuwmctl retire %s --force revokes them",
		    answer_text(result, "old_name"));
	return EXIT_DONE;
}

int swap_judge(const struct swap_outcome *outcome, bool is_asked)
{
	const struct error *kept = &outcome->kept;
	char message[sizeof(kept->message) + 64];

	if (!kept->code)
		return EXIT_DONE;
	if (!is_asked) {
		exit_note(kept->detail, "the old version was not retired: %s", kept->message);
		return EXIT_DONE;
	}
	snprintf(message, sizeof(message), "the old version was not retired: %s", kept->message);
	return exit_tell(exit_code_of(kept->code), kept->code, message, kept->detail);
}

int alias_move(struct gpuwm_client *client, const struct gpuwm_swap_options *options)
{
	static const struct view view = {swap_print, cell_text, "name", NULL};
	const char *alias = options->alias ? options->alias : "current";
	struct swap_outcome outcome;
	json_t *before, *list, *result;
	int code = answer_get(client, "list", options->model, &before);

	if (code != EXIT_DONE)
		return code;
	if (version_swap(client, options, &outcome) < 0)
		code = exit_with_error();
	else
		code = answer_get(client, "list", options->model, &list);
	if (code == EXIT_DONE) {
		result = swap_result(before, list, options->model, alias, &outcome);
		json_object_set_new(result, "to", options->to ? json_string(options->to) : json_null());
		json_decref(list);
		code = result_show(result, &view);
	}
	if (code == EXIT_DONE)
		code = swap_judge(&outcome, options->retire_old);
	json_decref(before);
	return code;
}

/* ---- retire ------------------------------------------------------------ */

static int retire_once(struct gpuwm_client *client, const char *ref, const uint64_t *after_ms, int64_t wait_ms)
{
	return after_ms ? gpuwm_retire_by_force(client, ref, *after_ms, wait_ms)
			: gpuwm_retire(client, ref, wait_ms);
}

int version_retire(struct gpuwm_client *client, const char *ref, const char *id, const uint64_t *after_ms,
		   int64_t wait_ms)
{
	const int64_t deadline = clock_deadline(wait_ms);
	int64_t left = wait_ms;
	int r = retire_once(client, ref, after_ms, wait_ms);

	if (r != -ECONNABORTED || !*id)
		return r;
	while (r == -ECONNABORTED) {
		if (wait_ms > 0)
			left = clock_later(clock_until(deadline), 1); /* 0 would not wait */
		r = retire_once(client, id, after_ms, left);
	}
	return r == -ENOENT ? 0 : r; /* it was, and is freed */
}

/* ---- the aliases of a version ---- */

/* Whether the alias names the version with this id, and keeps it: gpuwmd removes `previous` by itself. */
static bool alias_keeps(const json_t *alias, const char *id)
{
	return strcmp(answer_text(alias, "version"), id) == 0 &&
	       strcmp(answer_text(alias, "alias"), "previous") != 0;
}

int aliases_drop(struct gpuwm_client *client, const json_t *list, const char *id, json_t *names)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	const json_t *alias;
	size_t i;

	json_array_foreach(json_object_get(list, "aliases"), i, alias) {
		options.model = answer_text(alias, "model");
		options.alias = answer_text(alias, "alias");
		options.expect = answer_text(alias, "version");
		if (!alias_keeps(alias, id))
			continue;
		if (gpuwm_swap(client, &options, NULL) < 0)
			return exit_with_error();
		json_array_append_new(names, json_string(options.alias));
	}
	return EXIT_DONE;
}

void aliases_print(const json_t *names)
{
	const json_t *name;
	size_t i;

	json_array_foreach(names, i, name) {
		say("the alias %s is removed", json_string_value(name));
	}
}

static bool version_is_kept_by_alias(struct gpuwm_client *client, const char *id)
{
	const json_t *alias;
	json_t *list = NULL;
	bool found = false;
	size_t i;

	if (answer_ask(client, "list", NULL, &list) < 0)
		return false;
	json_array_foreach(json_object_get(list, "aliases"), i, alias)
		found |= alias_keeps(alias, id);
	json_decref(list);
	return found;
}

int version_busy(struct gpuwm_client *client, const struct arguments *arguments, const char *id)
{
	const struct gpuwm_error *last = gpuwm_error(); /* until the next call */
	char message[TEXT_BYTES_MAX + 1], detail[2 * TEXT_BYTES_MAX];
	const int code = last->code;

	if (code != -EBUSY)
		return exit_with_error();
	snprintf(message, sizeof(message), "%s", last->message);
	snprintf(detail, sizeof(detail), "%s", last->detail);
	if (version_is_kept_by_alias(client, id)) /* else a pin keeps it */
		snprintf(detail + strlen(detail), sizeof(detail) - strlen(detail),
			 "; or remove them with the version: gpuwmctl %s %s --aliases", arguments->command,
			 arguments->positional[0]);
	return exit_tell(EXIT_IN_USE, code, message, detail);
}

/* ---- its tier ------------------------------------------------------------ */

const char *tier_of(const json_t *version)
{
	const char *tier = answer_text(version, "tier");

	return *tier ? tier : "device";
}

const char *tier_text(const json_t *version, char text[CELL_TEXT])
{
	const char *tier = answer_text(version, "tier"), *moving = answer_text(version, "moving");

	text[0] = '\0';
	if (*tier)
		snprintf(text, CELL_TEXT, ", on %s", tier);
	if (*moving)
		snprintf(text + strlen(text), CELL_TEXT - strlen(text), ", %s",
			 strcmp(moving, "device") == 0 ? "promoting" : "demoting");
	return text;
}

static int demoted_print(const json_t *version)
{
	char name[CELL_TEXT], size[SHORT_TEXT];
	const char *source = answer_text(version, "source");

	say("%s  %s", cell_name(version, NULL, name), answer_text(version, "version"));
	say("lies on %s: a worker that attaches waits until gpuwmd has promoted it", tier_of(version));
	if (*source)
		say("source %s", source);
	say("size %s, tensors %" PRIu64, size_text(answer_number(version, "bytes"), size),
	    answer_number(version, "tensors"));
	say("layout  %s", answer_text(version, "layout"));
	say("content %s", answer_text(version, "content"));
	answer_error_print(version, "promotion_error", "its last promotion failed");
	say("its tensors are shown when it lies on its devices: gpuwmctl promote %s --wait",
	    cell_name(version, NULL, name));
	return EXIT_DONE;
}

int tier_show(const json_t *version)
{
	static const struct view view = {demoted_print, cell_name, NULL, NULL};

	return result_show(json_incref((json_t *)version), &view);
}
