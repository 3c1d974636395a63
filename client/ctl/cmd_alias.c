/* alias, rollback: moves of an alias that say less than swap. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "version.h"

#include "../../proto/names.h"

#include <stdio.h>
#include <string.h>

/* ---- alias --------------------------------------------------------------- */

/* The model of a version whose id stands for it. */
static int model_of_id(struct gpuwm_client *client, const char *id, char ret_model[ALIAS_TEXT])
{
	const json_t *version;
	json_t *list;
	int code = answer_get(client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, id);
	if (version)
		snprintf(ret_model, ALIAS_TEXT, "%s", answer_text(version, "model"));
	else
		code = exit_with(EXIT_NOT_FOUND, "gpuwmctl ls lists the versions", "there is no version %s",
				 id);
	json_decref(list);
	return code;
}

static int alias_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	const char *text = arguments->positional[0], *why;
	char model[ALIAS_TEXT];
	struct ref ref;
	int code = EXIT_DONE;

	if (ref_parse(text, &ref, &why) < 0) /* words_check refuses it before */
		return exit_with(EXIT_USAGE, NULL, "'%s' %s", text, why);
	if (ref.has_id)
		code = model_of_id(client, text, model);
	else
		snprintf(model, sizeof(model), "%s", ref.model);
	if (code != EXIT_DONE)
		return code;
	options.model = model;
	options.alias = arguments->positional[1];
	options.to = ref.has_id ? text : ref.name;
	return alias_move(client, &options);
}

const struct command command_alias = {
	.name = "alias",
	.words = {{"REF", WORD_REF, false}, {"NAME", WORD_NAME, false}},
	.summary = "give REF an alias, or move that alias to REF",
	.about = "gpuwmctl swap MODEL@NAME --remove removes the alias.",
	.example = "gpuwmctl alias llama@v3 prod",
	.run = alias_run,
};

/* ---- rollback ------------------------------------------------------------ */

/* Only from what the list told: if somebody else has moved the alias meanwhile, gpuwmd refuses. */
static int alias_roll_back(struct gpuwm_client *client, const json_t *list, const char *model,
			   const char *alias_name)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	const json_t *alias = answer_alias_listed(list, model, alias_name);
	char detail[2 * ALIAS_TEXT + 120];

	if (!alias) {
		snprintf(detail, sizeof(detail), "gpuwmctl ls %s lists versions and aliases", model);
		return exit_with(EXIT_NOT_FOUND, detail,
				 json_array_size(json_object_get(list, "versions")) > 0
					 ? "model \"%s\" has no alias \"%s\""
					 : "there is no model \"%s\", and so no alias \"%s\" of it",
				 model, alias_name);
	}
	options.model = model;
	options.alias = alias_name;
	options.to = answer_text(alias, "before");
	/* A gpuwmd that does not tell it knows it of current only. */
	if (!*options.to && strcmp(alias_name, "current") == 0)
		options.to = answer_alias(list, model, "previous");
	options.expect = answer_text(alias, "version");
	if (!*options.to) {
		snprintf(detail, sizeof(detail),
			 "gpuwmctl ls %s lists the versions, and gpuwmctl swap %s@%s TO moves the alias to one",
			 model, model, alias_name);
		return exit_with(EXIT_NOT_FOUND, detail,
				 "%s@%s has named no other version, or that one is retired", model, alias_name);
	}
	return alias_move(client, &options);
}

static int rollback_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	char model[ALIAS_TEXT];
	const char *alias;
	json_t *list;
	int code = arguments_alias(arguments, model, &alias);

	if (code != EXIT_DONE)
		return code;
	if (alias && arguments->positional_count > 1)
		return exit_with(EXIT_USAGE, "write MODEL@ALIAS, or MODEL ALIAS",
				 "the alias is given twice: %s and %s", alias, arguments->positional[1]);
	if (!alias)
		alias = arguments->positional_count > 1 ? arguments->positional[1] : "current";
	if (strcmp(alias, "previous") == 0)
		return exit_with(EXIT_USAGE, "gpuwmd moves it when current moves: roll current back",
				 "the alias previous can't be rolled back");
	code = answer_get(client, "list", model, &list);
	if (code != EXIT_DONE)
		return code;
	code = alias_roll_back(client, list, model, alias);
	json_decref(list);
	return code;
}

const struct command command_rollback = {
	.name = "rollback",
	.words = {{"MODEL[@ALIAS]", WORD_ALIAS_OF, false}, {"ALIAS", WORD_ALIAS, true}},
	.summary = "move an alias back to the version that it named before",
	.about =
		"ALIAS is current by default; it may also be a word of its own. A second rollback goes forward again.",
	.example = "gpuwmctl rollback llama\n"
		   "gpuwmctl rollback llama@prod",
	.run = rollback_run,
};
