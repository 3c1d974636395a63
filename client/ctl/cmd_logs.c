/* logs: journalctl of the unit that runs gpuwmd, or where else its log goes. */
#include "commands.h"

#include "answer.h"
#include "connect.h"
#include "exit.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UNIT_DEFAULT "gpuwmd.service" /* of a gpuwmd that does not run */
#define UNIT_TEXT 256 /* UNIT_NAME_MAX of systemd */
#define COMM_TEXT 17 /* TASK_COMM_LEN, and a newline */
#define JOURNAL_WORDS_MAX 10

struct source {
	int pid; /* of gpuwmd; 0: it is not reachable */
	int keeper; /* pid of the gpuwm-keeper that runs it; 0: none */
	char unit[UNIT_TEXT]; /* of systemd; "": it does not run gpuwmd */
	bool user; /* the unit is of a user's manager */
	char parent[COMM_TEXT]; /* what else runs it */
};

/* ---- processes -------------------------------------------------------------- */

static bool proc_read(int pid, const char *file, char *ret_text, size_t size)
{
	char path[64];
	FILE *from;
	size_t length;

	snprintf(path, sizeof(path), "/proc/%d/%s", pid, file);
	from = fopen(path, "re");
	if (!from)
		return false;
	length = fread(ret_text, 1, size - 1, from);
	fclose(from);
	ret_text[length] = '\0';
	return length > 0;
}

static void comm_of(int pid, char ret_comm[COMM_TEXT])
{
	if (!proc_read(pid, "comm", ret_comm, COMM_TEXT))
		ret_comm[0] = '\0';
	ret_comm[strcspn(ret_comm, "\n")] = '\0';
}

static int parent_of(int pid)
{
	char stat[512];
	const char *after = proc_read(pid, "stat", stat, sizeof(stat)) ? strrchr(stat, ')') : NULL;
	int parent = 0;

	/* PID (COMM) STATE PPID: COMM may hold anything. */
	return after && sscanf(after, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* The unit whose cgroup the process is in, as in "0::/system.slice/gpuwmd.service". */
static void unit_of(int pid, struct source *source)
{
	char text[4096], *line, *rest = NULL, *name;

	if (!proc_read(pid, "cgroup", text, sizeof(text)))
		return;
	for (line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
		name = strrchr(line, '/');
		if (strncmp(line, "0::", 3) != 0 && !strstr(line, "name=systemd"))
			continue;
		if (!name || strlen(name + 1) >= UNIT_TEXT || !strstr(name, ".service"))
			continue;
		snprintf(source->unit, sizeof(source->unit), "%s", name + 1);
		source->user = strstr(line, "/user@") != NULL;
	}
}

/* Which program started gpuwmd. Only systemd's own children have their log in its journal: others may be in a unit's cgroup
 * because a terminal is. */
static void source_find(struct source *source)
{
	int parent = parent_of(source->pid);

	comm_of(parent, source->parent);
	if (strcmp(source->parent, "gpuwm-keeper") == 0) {
		source->keeper = parent;
		parent = parent_of(parent);
	}
	comm_of(parent, source->parent);
	if (strcmp(source->parent, "systemd") == 0)
		unit_of(source->pid, source);
}

/* ---- the journal -------------------------------------------------------------- */

static int journal_show(const struct arguments *arguments, const struct source *source)
{
	char lines[24];
	const char *words[JOURNAL_WORDS_MAX] = {"journalctl", source->user ? "--user-unit" : "--unit",
						source->unit};
	size_t count = 3;

	if (arguments->given[OPTION_FOLLOW])
		words[count++] = "--follow";
	if (arguments->given[OPTION_LINES]) {
		snprintf(lines, sizeof(lines), "%" PRIu64, arguments->lines);
		words[count++] = "--lines";
		words[count++] = lines;
	}
	if (arguments->json) {
		words[count++] = "--output";
		words[count++] = "json";
	}
	execvp(words[0], (char *const *)words);
	return exit_with(EXIT_FAILED, "journalctl belongs to systemd, which runs here: is it in PATH?",
			 "can't run journalctl --unit %s: %s", source->unit, strerror(errno));
}

/* ---- without a journal ---------------------------------------------------------- */

/* What stderr of the process is: a file, or in words what else. */
static bool stderr_of(int pid, char *ret_text, size_t size)
{
	char path[64];
	ssize_t length;

	snprintf(path, sizeof(path), "/proc/%d/fd/2", pid);
	length = readlink(path, ret_text, size - 1);
	ret_text[length > 0 ? length : 0] = '\0';
	return ret_text[0] == '/' && strncmp(ret_text, "/dev/", 5) != 0;
}

static int elsewhere_tell(const struct source *source)
{
	char by[80], path[PATH_MAX], detail[PATH_MAX + 64];
	bool is_file = stderr_of(source->keeper ? source->keeper : source->pid, path, sizeof(path));

	if (source->keeper)
		snprintf(by, sizeof(by), "gpuwm-keeper (pid %d) runs gpuwmd", source->keeper);
	else
		snprintf(by, sizeof(by), "systemd does not run gpuwmd (pid %d)", source->pid);
	snprintf(detail, sizeof(detail), "tail -f %s", path);
	if (is_file)
		return exit_with(EXIT_NOT_FOUND, detail, "%s: the log is no journal, but the file %s", by,
				 path);
	return exit_with(EXIT_NOT_FOUND,
			 source->keeper == 1 ? "docker logs, podman logs or kubectl logs shows it"
					     : "look where its stderr was sent when it was started",
			 "%s: the log is no journal, but its stderr%s%s", by, *path ? ", which is " : "", path);
}

/* gpuwmd is not reachable: systemd still has its journal. */
static int absent_tell(const struct arguments *arguments, struct source *source)
{
	if (access("/run/systemd/system", F_OK) == 0) {
		snprintf(source->unit, sizeof(source->unit), "%s", UNIT_DEFAULT);
		return journal_show(arguments, source);
	}
	return exit_with(
		EXIT_UNREACHABLE,
		"gpuwm-keeper and gpuwmd write to their stderr: docker logs, podman logs or kubectl logs "
		"shows that of a container",
		"gpuwmd is not reachable, and systemd does not run here: nothing says where the log is");
}

int command_logs(struct gpuwm_client *none, const struct arguments *arguments)
{
	struct source source = {0};
	struct gpuwm_client *client;
	char comm[COMM_TEXT];
	json_t *status;
	int code;

	(void)none;
	if (connect_as(arguments, SOCKET_ANY, &client) < 0)
		return absent_tell(arguments, &source);
	code = answer_get(client, "status", NULL, &status);
	gpuwm_close(client);
	if (code != EXIT_DONE)
		return code;
	source.pid = (int)answer_number(status, "pid");
	json_decref(status);
	comm_of(source.pid, comm);
	if (strcmp(comm, "gpuwmd") != 0)
		return exit_with(EXIT_NOT_FOUND, "run gpuwmctl logs where gpuwmd runs",
				 "gpuwmd (pid %d there) runs in another container, and its log is there",
				 source.pid);
	source_find(&source);
	return *source.unit ? journal_show(arguments, &source) : elsewhere_tell(&source);
}
