#include "commands.h"

#include "answer.h"
#include "cells.h"
#include "exit.h"
#include "line.h"

static int file_print(const json_t *answer)
{
	const char *file = answer_text(answer, "file");

	if (*file)
		say("gpuwmd now uses %s as it stands", file);
	else
		say("gpuwmd was started without a configuration file: it uses its flags, as before");
	return EXIT_DONE;
}

int command_reload(struct gpuwm_client *client, const struct arguments *arguments)
{
	static const struct view view = {file_print, cell_text, "file", NULL};

	(void)arguments;
	return answer_show(client, "reload", NULL, &view);
}
