/* Whether gpuwmd is of the same release as gpuwmctl, and runs from the file that is installed. */
#include "answer.h"
#include "runner.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_TEXT 400 /* of a path in a sentence */

void release_own_path(char *ret_path, size_t size)
{
	ssize_t bytes = readlink("/proc/self/exe", ret_path, size - 1);

	ret_path[bytes > 0 ? bytes : 0] = '\0';
}

bool release_differs(const json_t *status, char ret_text[RELEASE_TEXT])
{
	const char *server = answer_text(status, "server"), *program = answer_text(status, "program");
	const unsigned long long pid = answer_number(status, "pid");
	char own[PATH_TEXT];

	if (json_is_true(json_object_get(status, "replaced"))) {
		snprintf(ret_text, RELEASE_TEXT,
			 "gpuwmd %s (pid %llu) runs from a file that was replaced or removed: %.*s", server,
			 pid, PATH_TEXT, program);
		return true;
	}
	if (strcmp(server, GPUWM_VERSION) == 0)
		return false;
	release_own_path(own, sizeof(own));
	snprintf(ret_text, RELEASE_TEXT, "gpuwmd is %s (pid %llu, %.*s), gpuwmctl is %s (%s)", server, pid,
		 PATH_TEXT, *program ? program : "its file is not known", GPUWM_VERSION, own);
	return true;
}

void release_remedy(const json_t *status, const char *socket, char ret_remedy[RELEASE_TEXT])
{
	const pid_t pid = (pid_t)answer_number(status, "pid");
	struct runner runner;

	if (!runner_is_gpuwmd(pid)) {
		snprintf(ret_remedy, RELEASE_TEXT,
			 "gpuwmd runs in another container: use the gpuwmctl there, or renew that container");
		return;
	}
	runner = runner_find(pid, socket);
	runner_renew_text(&runner, ret_remedy, RELEASE_TEXT);
}
