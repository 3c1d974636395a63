#include "hint.h"

#include "answer.h"
#include "line.h"

#include "../../proto/names.h"
#include "../../base/utf8.h"

#include <stdio.h>
#include <string.h>

static bool has_model(const json_t *list, const char *model)
{
	return answer_find(list, "versions", "model", model);
}

static void hint_tell(const char *model, const char *between, const char *name)
{
	char text[2 * SUGGEST_TEXT + 1], shown[UTF8_SHOWN_MAX(sizeof(text))];

	snprintf(text, sizeof(text), "%s%s%s?", model, between, name);
	utf8_show(text, shown, sizeof(shown));
	line_print(stderr, STYLE_PLAIN, "  did you mean ", shown);
}

/* The model is misspelled. name: of the version, or "". */
static void hint_model(const json_t *list, const char *model, const char *name)
{
	struct suggestion suggestion;
	const json_t *version;
	char ref[2 * SUGGEST_TEXT];
	size_t i;

	suggest_begin(&suggestion, model);
	json_array_foreach(json_object_get(list, "versions"), i, version)
		suggest_offer(&suggestion, answer_text(version, "model"));
	if (!suggestion.name[0])
		return;
	snprintf(ref, sizeof(ref), "%s@%s", suggestion.name, name);
	hint_tell(*answer_ref(list, ref) ? ref : suggestion.name, "", "");
}

/* Offers what the key names of each item of the model. Returns whether one of them is the word itself. */
static bool offer_names(const json_t *items, const char *model, const char *key, struct suggestion *suggestion)
{
	const json_t *item;
	bool found = false;
	size_t i;

	json_array_foreach(items, i, item) {
		if (strcmp(answer_text(item, "model"), model) != 0)
			continue;
		found = found || strcmp(answer_text(item, key), suggestion->word) == 0;
		suggest_offer(suggestion, answer_text(item, key));
	}
	return found;
}

/* The model is there, and perhaps no such tag or alias. is_ref: what the user wrote has the model in it. */
static void hint_name(const json_t *list, const char *model, const char *name, bool is_ref)
{
	struct suggestion suggestion;
	bool found;

	suggest_begin(&suggestion, name);
	found = offer_names(json_object_get(list, "versions"), model, "tag", &suggestion);
	found = offer_names(json_object_get(list, "aliases"), model, "alias", &suggestion) || found;
	if (!found && suggestion.name[0])
		hint_tell(is_ref ? model : "", is_ref ? "@" : "", suggestion.name);
}

static void hint_ref(const json_t *list, const char *text)
{
	char model[NAME_BYTES_MAX + 1];
	const char *at = strchr(text, '@'), *name = at ? at + 1 : "";
	uint8_t id[16];

	if (strlen(text) >= SUGGEST_TEXT || hex128_parse(text, id) == 0)
		return;
	snprintf(model, sizeof(model), "%.*s", (int)(at ? at - text : (ptrdiff_t)strlen(text)), text);
	if (!has_model(list, model))
		hint_model(list, model, name);
	else
		hint_name(list, model, at ? name : ALIAS_CURRENT, true);
}

static void hint_word(const json_t *list, enum word_kind kind, const struct arguments *arguments, int word)
{
	const char *text = arguments->positional[word];
	char model[NAME_BYTES_MAX + 1];

	switch (kind) {
	case WORD_REF:
	case WORD_ALIAS_OF:
		hint_ref(list, text);
		break;
	case WORD_MODEL:
		if (!has_model(list, text))
			hint_model(list, text, "");
		break;
	case WORD_ALIAS:
	case WORD_TARGET:
		snprintf(model, sizeof(model), "%.*s", (int)strcspn(arguments->positional[0], "@"),
			 arguments->positional[0]);
		if (has_model(list, model))
			hint_name(list, model, text, false);
		break;
	default:
		break;
	}
}

void hint_print(struct gpuwm_client *client, const struct command *command, const struct arguments *arguments)
{
	json_t *list;

	if (command->words[0].kind == WORD_ANY || answer_ask(client, "list", NULL, &list) < 0)
		return;
	for (int i = 0; i < arguments->positional_count && i < POSITIONALS_MAX; i++)
		hint_word(list, command->words[i].kind, arguments, i);
	json_decref(list);
}
