#include "runner.h"

#include "../../proto/socket_place.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define KEEPER "gpuwm-keeper"
#define SOCKET_TEXT 128 /* more than a socket's path may have */
#define COMMAND_BYTES 65536 /* a command line with ROOTS_MAX roots, each of some hundred bytes */

/* Returns the number of bytes; 0: the process is gone. */
static size_t proc_read(pid_t pid, const char *file, char *ret_text, size_t size)
{
	char path[64];
	FILE *from;
	size_t length;

	ret_text[0] = '\0';
	snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
	from = fopen(path, "re");
	if (!from)
		return 0;
	length = fread(ret_text, 1, size - 1, from);
	fclose(from);
	ret_text[length] = '\0';
	return length;
}

static bool process_is_named(pid_t pid, const char *name)
{
	char comm[COMM_TEXT];

	proc_read(pid, "comm", comm, sizeof(comm));
	comm[strcspn(comm, "\n")] = '\0';
	return strcmp(comm, name) == 0;
}

bool runner_is_gpuwmd(pid_t pid)
{
	return pid > 0 && process_is_named(pid, "gpuwmd");
}

static pid_t process_parent(pid_t pid)
{
	char stat[512];
	const char *after = proc_read(pid, "stat", stat, sizeof(stat)) ? strrchr(stat, ')') : NULL;
	int parent = 0;

	/* PID (COMM) STATE PPID: COMM may hold anything. */
	return after && sscanf(after, ") %*c %d", &parent) == 1 ? parent : 0;
}

/* The unit whose cgroup the process is in, as in "0::/system.slice/gpuwmd.service". */
static void runner_set_unit(pid_t pid, struct runner *runner)
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
		snprintf(runner->unit, sizeof(runner->unit), "%s", name + 1);
		runner->user = strstr(line, "/user@") != NULL;
	}
}

/* Sets what systemd, or gpuwmctl, runs `child`. Only systemd's own children have their log in its journal: others may be in a unit's
 * cgroup because a terminal is. */
static void runner_set_parent(pid_t child, struct runner *runner)
{
	const pid_t parent = process_parent(child);

	if (process_is_named(parent, "systemd"))
		runner_set_unit(child, runner);
	else if (process_is_named(parent, "gpuwmctl"))
		runner->foreground = parent;
}

struct runner runner_of_keeper(pid_t keeper)
{
	struct runner runner = {.keeper = keeper, .is_started = true};

	runner_set_parent(keeper, &runner);
	return runner;
}

/* The keeper that takes over in the folder of the workers' socket. */
static pid_t keeper_beside(const char *socket)
{
	const char *slash = strrchr(socket, '/');
	char take_over[SOCKET_TEXT];

	snprintf(take_over, sizeof(take_over), "%.*s/" RUNNER_TAKE_OVER, (int)(slash ? slash - socket : 0),
		 socket);
	return runner_keeper_at(take_over, 0, NULL, 0, NULL);
}

struct runner runner_find(pid_t pid, const char *socket)
{
	struct runner runner = {0};
	const pid_t parent = process_parent(pid);

	if (!process_is_named(parent, KEEPER)) {
		runner_set_parent(pid, &runner);
		return runner;
	}
	/* In a container the keeper is the first process, and the container's engine started it. */
	if (parent != 1 && keeper_beside(socket) == parent)
		return runner_of_keeper(parent);
	runner.keeper = parent;
	runner_set_parent(parent, &runner);
	return runner;
}

void runner_renew_text(const struct runner *runner, char *ret_text, size_t size)
{
	if (runner->is_started)
		snprintf(ret_text, size, "gpuwmctl restart takes over without losing weights");
	else if (runner->keeper == 1)
		snprintf(ret_text, size, "renew its container: the next one takes the weights over");
	else if (runner->keeper)
		snprintf(ret_text, size, "kill -USR1 %d starts it anew from its file, without losing weights",
			 (int)runner->keeper);
	else if (*runner->unit)
		snprintf(ret_text, size, "systemctl %srestart %s keeps the weights",
			 runner->user ? "--user " : "", runner->unit);
	else
		snprintf(
			ret_text, size,
			"nothing keeps the weights of this gpuwmd over a restart: gpuwmctl start starts one with "
			"gpuwm-keeper, which does");
}

/* ---- the keeper at a socket -------------------------------------------------- */

static bool process_is_own(pid_t pid)
{
	char status[4096];
	const char *line = proc_read(pid, "status", status, sizeof(status)) ? strstr(status, "\nUid:") : NULL;
	unsigned uid;

	return line && sscanf(line, "\nUid: %*u %u", &uid) == 1 && uid == geteuid();
}

/* Returns where PROGRAM is, the word after "--", in a keeper's command line, or the end if there is none. Sets *ret_is_there to whether
 * the keeper takes over at this socket. */
static const char *keeper_program(const char *command, size_t bytes, const char *take_over, bool *ret_is_there)
{
	const char *end = command + bytes, *word = command;

	*ret_is_there = false;
	while (word < end && strcmp(word, "--") != 0) {
		const char *next = word + strlen(word) + 1;

		*ret_is_there |= next < end && strcmp(word, "--take-over") == 0 && strcmp(next, take_over) == 0;
		word = next;
	}
	if (word < end)
		word += strlen(word) + 1;
	return word < end ? word : end;
}

bool runner_program_is_gone(pid_t keeper, char *ret_path, size_t size)
{
	char *command = malloc(COMMAND_BYTES);
	const size_t bytes = command ? proc_read(keeper, "cmdline", command, COMMAND_BYTES) : 0;
	bool is_there, is_gone;
	const char *program = bytes ? keeper_program(command, bytes, "", &is_there) : "";

	if (bytes && program == command + bytes)
		program = ""; /* the command line is longer than the buffer */
	/* A name without a slash is searched in PATH, and that of a keeper is not known. */
	is_gone = program[0] == '/' && access(program, F_OK) < 0 && errno == ENOENT;
	if (is_gone)
		snprintf(ret_path, size, "%s", program);
	free(command);
	return is_gone;
}

pid_t runner_keeper_at(const char *take_over, pid_t except, char *ret_words, size_t size, size_t *ret_bytes)
{
	char *command = malloc(COMMAND_BYTES);
	DIR *folder = opendir("/proc");
	const struct dirent *entry;
	pid_t found = 0;

	/* cppcheck-suppress readdirCalled ; there is one thread */
	while (command && folder && found == 0 && (entry = readdir(folder))) {
		const pid_t pid = (pid_t)strtol(entry->d_name, NULL, 10);
		const char *words;
		bool is_there;
		size_t bytes;

		if (pid <= 0 || pid == except || !process_is_named(pid, KEEPER) || !process_is_own(pid))
			continue;
		bytes = proc_read(pid, "cmdline", command, COMMAND_BYTES);
		words = keeper_program(command, bytes, take_over, &is_there);
		if (!is_there)
			continue;
		if (words < command + bytes) /* they follow PROGRAM */
			words += strlen(words) + 1;
		found = pid;
		bytes -= (size_t)(words - command);
		if (ret_words && bytes <= size) {
			memcpy(ret_words, words, bytes);
			*ret_bytes = bytes;
		}
	}
	if (folder)
		closedir(folder);
	free(command);
	return found;
}

pid_t runner_keeper_find(const char *given, char *ret_socket, size_t size)
{
	struct socket_places places;
	pid_t keeper = 0;

	if (socket_places_find(given, false, &places) < 0)
		return 0;
	for (size_t i = 0; i < places.count && keeper == 0; i++) {
		keeper = keeper_beside(places.items[i].path);
		if (keeper && ret_socket)
			snprintf(ret_socket, size, "%s", places.items[i].path);
	}
	socket_places_clear(&places);
	return keeper;
}
