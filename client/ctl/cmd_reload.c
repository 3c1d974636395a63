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
		printf("gpuwmd goes by %s as it is now\n", shown);
	else if (!arguments->json)
		puts("gpuwmd was started without a file: it goes by its flags, as before");
	json_decref(answer);
	return code;
}
