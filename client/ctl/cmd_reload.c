#include "commands.h"

#include "answer.h"
#include "exit.h"

#include "../../proto/utf8.h"

#include <stdio.h>

int command_reload(struct gpuwm_client *client, const struct arguments *arguments)
{
	json_t *answer;
	char shown[UTF8_SHOWN_MAX(PATH_BYTES_MAX)];
	int code = answer_query(client, arguments, "reload", NULL, &answer);

	if (code != EXIT_DONE)
		return code;
	utf8_show(answer_text(answer, "file"), shown, sizeof(shown));
	if (!arguments->json && shown[0])
		printf("gpuwmd now uses %s as it stands\n", shown);
	else if (!arguments->json)
		puts("gpuwmd was started without a configuration file: it uses its flags, as before");
	json_decref(answer);
	return code;
}
