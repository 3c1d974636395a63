#include "commands.h"

#include "answer.h"
#include "exit.h"

#include "../../proto/utf8.h"

#include <stdio.h>

static int file_print(const json_t *answer)
{
	char shown[UTF8_SHOWN_MAX(PATH_BYTES_MAX)];

	utf8_show(answer_text(answer, "file"), shown, sizeof(shown));
	if (shown[0])
		printf("gpuwmd now uses %s as it stands\n", shown);
	else
		puts("gpuwmd was started without a configuration file: it uses its flags, as before");
	return EXIT_DONE;
}

int command_reload(struct gpuwm_client *client, const struct arguments *arguments)
{
	return answer_show(client, arguments, "reload", NULL, file_print);
}
