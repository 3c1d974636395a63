/* swap: which version an alias names. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"
#include "version.h"

int swap_run(struct gpuwm_client *client, const struct arguments *arguments,
	     const struct gpuwm_swap_options *options)
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
		code = swap_judge(arguments, &outcome);
	json_decref(before);
	return code;
}

int command_swap(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char model[ALIAS_TEXT];
	int code;

	if (arguments->given[OPTION_LOAD])
		return command_replace(client, arguments);
	code = arguments_alias(arguments, model, &options.alias);
	if (code != EXIT_DONE)
		return code;
	options.model = model;
	options.to = arguments->positional[1];
	options.expect = arguments->expect;
	options.retire_old = arguments->given[OPTION_RETIRE_OLD];
	if (arguments->given[OPTION_REMOVE] && options.to)
		return exit_with(EXIT_USAGE, NULL, "--remove takes no TO");
	/* An empty TO comes of an empty variable in a script: no wish to remove. */
	if (!arguments->given[OPTION_REMOVE] && (!options.to || !options.to[0]))
		return exit_with(EXIT_USAGE,
				 "TO is a tag, an alias or a version id; --remove removes the alias",
				 "swap needs TO");
	return swap_run(client, arguments, &options);
}
