/* version: who is who. */
#include "commands.h"

#include "answer.h"
#include "command.h"
#include "exit.h"
#include "line.h"
#include "runner.h"

#include "../../base/utf8.h"

#include <stdio.h>

#define NOTE_TEXT (2 * RELEASE_TEXT + 2)

static int versions_json(const json_t *status, const char *note, const struct gpuwm_error *error)
{
	json_t *gpuwmd =
		status ? json_pack("{s:O, s:O, s:O*, s:O*}", "version", json_object_get(status, "server"),
				   "pid", json_object_get(status, "pid"), "program",
				   json_object_get(status, "program"), "replaced",
				   json_object_get(status, "replaced"))
		       : NULL;

	return answer_print(json_pack("{s:s, s:s, s:o?, s:s*, s:s?}", "gpuwmctl", GPUWM_VERSION, "library",
				      gpuwm_library_version(), "gpuwmd", gpuwmd, "note", *note ? note : NULL,
				      "error", status ? NULL : error->message));
}

static int versions_print(const json_t *status, const char *note, const struct gpuwm_error *error)
{
	char shown[UTF8_SHOWN_MAX(TEXT_BYTES_MAX)], own[PATH_BYTES_MAX];

	release_own_path(own, sizeof(own));
	say("gpuwmctl          %s, %s", GPUWM_VERSION, own);
	say("libgpuwm-client   %s", gpuwm_library_version());
	if (status) {
		say("gpuwmd            %s, %s (pid %llu)", answer_text(status, "server"),
		    answer_text(status, "program"), (unsigned long long)answer_number(status, "pid"));
		if (*note)
			say("%s", note);
		return EXIT_DONE;
	}
	utf8_show(error->message, shown, sizeof(shown));
	printf("gpuwmd            not reachable: %s\n", shown);
	return EXIT_DONE;
}

static int version_run(struct gpuwm_client *none, const struct arguments *arguments)
{
	struct gpuwm_client *client = NULL;
	char note[NOTE_TEXT] = "", release[RELEASE_TEXT], remedy[RELEASE_TEXT];
	json_t *status = NULL;
	int code = EXIT_DONE;

	(void)none;
	if (connect_as(arguments, SOCKET_ANY, &client) == 0)
		code = answer_get(client, "status", NULL, &status);
	if (code == EXIT_DONE) {
		if (status && release_differs(status, release)) {
			release_remedy(status, gpuwm_socket_path(client), remedy);
			snprintf(note, sizeof(note), "%s; %s", release, remedy);
		}
		code = arguments->json ? versions_json(status, note, gpuwm_error())
				       : versions_print(status, note, gpuwm_error());
	}
	json_decref(status);
	gpuwm_close(client);
	return code;
}

const struct command command_version = {
	.name = "version",
	.summary = "print the versions of gpuwmctl, the library and gpuwmd",
	.example = "gpuwmctl version",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = version_run,
};
