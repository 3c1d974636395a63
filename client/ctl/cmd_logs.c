/* logs: journalctl of the unit that runs gpuwmd, or where else its log goes. */
#include "commands.h"

#include "answer.h"
#include "command.h"
#include "exit.h"
#include "runner.h"
#include "start/own_gpuwmd.h"

#include "../../base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool follow;
static struct option_number lines;
static const struct option_row logs_options[] = {
	{"follow", "go on with what comes, until Ctrl-C", .into = &follow, .letter = 'f'},
	{"lines", "only the last N lines", "N", take_number, .into = &lines, .letter = 'n', .most = UINT32_MAX},
	{0},
};

#define UNIT_DEFAULT "gpuwmd.service" /* of a gpuwmd that does not run */
#define JOURNAL_WORDS_MAX 10

/* ---- the journal -------------------------------------------------------------- */

static int journal_show(const struct arguments *arguments, const struct runner *runner)
{
	char last[24];
	const char *words[JOURNAL_WORDS_MAX] = {"journalctl", runner->user ? "--user-unit" : "--unit",
						runner->unit};
	size_t count = 3;

	if (follow)
		words[count++] = "--follow";
	if (lines.given) {
		snprintf(last, sizeof(last), "%" PRIu64, lines.value);
		words[count++] = "--lines";
		words[count++] = last;
	}
	if (arguments->json) {
		words[count++] = "--output";
		words[count++] = "json";
	}
	execvp(words[0], (char *const *)words);
	return exit_with(EXIT_FAILED, "journalctl belongs to systemd, which runs here: is it in PATH?",
			 "can't run journalctl --unit %s: %s", runner->unit, strerror(errno));
}

/* ---- the file of gpuwmctl start -------------------------------------------------- */

static int file_show(const char *path)
{
	char last[24] = "+1";
	const char *words[] = {"tail", "-n", last, path, NULL, NULL};

	if (lines.given)
		snprintf(last, sizeof(last), "%" PRIu64, lines.value);
	if (follow) {
		words[3] = "-F";
		words[4] = path;
	}
	execvp(words[0], (char *const *)words);
	return exit_with(EXIT_FAILED, NULL, "can't run tail: %s; the log is %s", strerror(errno), path);
}

/* socket: one of its two. */
static int started_show(const struct runner *runner, const char *socket)
{
	const char *slash = strrchr(socket, '/');
	char path[OWN_PATH], folder[OWN_PATH];
	int code;

	if (runner->foreground)
		return exit_with(EXIT_NOT_FOUND, "look at the terminal where it was started",
				 "the log goes where gpuwmctl start --foreground (pid %d) runs",
				 (int)runner->foreground);
	snprintf(folder, sizeof(folder), "%.*s", (int)(slash ? slash - socket : 0), socket);
	code = own_log_path(folder, path);
	return code == EXIT_DONE ? file_show(path) : code;
}

/* ---- without a journal ---------------------------------------------------------- */

static int elsewhere_tell(pid_t pid, const struct runner *runner)
{
	char by[80], link[64], path[PATH_MAX], detail[PATH_MAX + 64];
	ssize_t length;

	/* What stderr of the process is: a file, or in words what else. */
	snprintf(link, sizeof(link), "/proc/%d/fd/2", runner->keeper ? runner->keeper : pid);
	length = readlink(link, path, sizeof(path) - 1);
	path[length > 0 ? length : 0] = '\0';
	if (runner->keeper)
		snprintf(by, sizeof(by), "gpuwm-keeper (pid %d) runs gpuwmd", runner->keeper);
	else
		snprintf(by, sizeof(by), "systemd does not run gpuwmd (pid %d)", pid);
	snprintf(detail, sizeof(detail), "tail -f %s", path);
	if (path[0] == '/' && strncmp(path, "/dev/", 5) != 0)
		return exit_with(EXIT_NOT_FOUND, detail, "%s: the log is no journal, but the file %s", by,
				 path);
	return exit_with(EXIT_NOT_FOUND,
			 runner->keeper == 1 ? "docker logs, podman logs or kubectl logs shows it"
					     : "look where its stderr was sent when it was started",
			 "%s: the log is no journal, but its stderr%s%s", by, *path ? ", which is " : "", path);
}

/* gpuwmd is not reachable: its keeper may be, and systemd still has its journal. */
static int absent_tell(const struct arguments *arguments, struct runner *runner)
{
	char socket[PATH_MAX];
	const pid_t keeper = runner_keeper_find(arguments->socket, socket, sizeof(socket));

	if (keeper) {
		*runner = runner_of_keeper(keeper);
		return started_show(runner, socket);
	}
	if (access("/run/systemd/system", F_OK) == 0) {
		snprintf(runner->unit, sizeof(runner->unit), "%s", UNIT_DEFAULT);
		return journal_show(arguments, runner);
	}
	return exit_with(
		EXIT_UNREACHABLE,
		"gpuwm-keeper and gpuwmd write to their stderr: docker logs, podman logs or kubectl logs "
		"shows that of a container",
		"gpuwmd is not reachable, and systemd does not run here: nothing says where the log is");
}

/* Its log is wanted most if gpuwmd hangs: then nobody waits as long as for an answer. */
#define LOGS_ANSWER_MS 5000

static int logs_run(struct gpuwm_client *none, const struct arguments *given)
{
	struct arguments soon = *given;
	const struct arguments *arguments = &soon;
	struct runner runner = {0};
	struct gpuwm_client *client;
	char socket[PATH_MAX];
	json_t *status;
	pid_t pid;
	int code;

	(void)none;
	soon.deadline_ms = clock_deadline(LOGS_ANSWER_MS);
	if (connect_as(arguments, SOCKET_ANY, &client) < 0)
		return absent_tell(arguments, &runner);
	code = answer_get(client, "status", NULL, &status);
	snprintf(socket, sizeof(socket), "%s", gpuwm_socket_path(client));
	gpuwm_close(client);
	if (code != EXIT_DONE)
		return code;
	pid = (pid_t)answer_number(status, "pid");
	json_decref(status);
	if (!runner_is_gpuwmd(pid))
		return exit_with(EXIT_NOT_FOUND, "run gpuwmctl logs where gpuwmd runs",
				 "gpuwmd (pid %d there) runs in another container, and its log is there", pid);
	runner = runner_find(pid, socket);
	if (runner.is_started)
		return started_show(&runner, socket);
	return *runner.unit ? journal_show(arguments, &runner) : elsewhere_tell(pid, &runner);
}

const struct command command_logs = {
	.name = "logs",
	.summary = "show gpuwmd's log: journalctl of its unit, or its file",
	.about = "If neither systemd nor gpuwmctl start runs gpuwmd, logs says where the log goes.",
	.options = logs_options,
	.example = "gpuwmctl logs -n 50 -f",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = logs_run,
};
