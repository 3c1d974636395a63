/* version: who is who. */
#include "commands.h"

#include "answer.h"
#include "connect.h"
#include "exit.h"

#include "../../proto/utf8.h"

#include <stdio.h>

static int versions_json(const json_t *status, const struct gpuwm_error *error)
{
	json_t *gpuwmd = status ? json_pack("{s:O, s:O}", "version", json_object_get(status, "server"), "pid",
					    json_object_get(status, "pid"))
				: NULL;

	return answer_print(json_pack("{s:s, s:s, s:o?, s:s?}", "gpuwmctl", GPUWM_VERSION, "library",
				      gpuwm_library_version(), "gpuwmd", gpuwmd, "error",
				      status ? NULL : error->message));
}

static int versions_print(const json_t *status, const struct gpuwm_error *error)
{
	char shown[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)];

	printf("gpuwmctl          %s\nlibgpuwm-client   %s\n", GPUWM_VERSION, gpuwm_library_version());
	if (status) {
		printf("gpuwmd            %s (pid %llu)\n", answer_text(status, "server"),
		       (unsigned long long)answer_number(status, "pid"));
		return EXIT_DONE;
	}
	utf8_show(error->message, shown, sizeof(shown));
	printf("gpuwmd            not reachable: %s\n", shown);
	return EXIT_DONE;
}

int command_version(struct gpuwm_client *none, const struct arguments *arguments)
{
	struct gpuwm_client *client = NULL;
	json_t *status = NULL;
	int code = EXIT_DONE;

	(void)none;
	if (connect_as(arguments, SOCKET_ANY, &client) == 0)
		code = answer_get(client, "status", NULL, &status);
	if (code == EXIT_DONE)
		code = arguments->json ? versions_json(status, gpuwm_error())
				       : versions_print(status, gpuwm_error());
	json_decref(status);
	gpuwm_close(client);
	return code;
}
