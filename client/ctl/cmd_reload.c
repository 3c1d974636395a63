#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "table.h"

static int file_print(const json_t *answer)
{
	const char *file = answer_text(answer, "file");

	if (*file)
		say("gpuwmd now uses %s as it stands", file);
	else
		say("gpuwmd was started without a configuration file: it uses its flags, as before");
	answer_error_print(answer, "not_described", "NOT DESCRIBED");
	return EXIT_DONE;
}

int command_reload(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {file_print, cell_text, "file", NULL};

	json_t *answer, *status = NULL;
	int code = answer_get(client, "reload", NULL, &answer);

	(void)arguments;
	if (code != EXIT_DONE)
		return code;
	/* gpuwmd took the configuration, and may have found a folder that it can't use. */
	if (answer_ask(client, "status", NULL, &status) == 0)
		json_object_set(answer, "not_described",
				json_object_get(json_object_get(status, "tiers"), "error"));
	json_decref(status);
	return result_show(answer, &view);
}
