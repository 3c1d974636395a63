#include "threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXITING 0x4u /* PF_EXITING of the kernel */

/* Reads /proc/self/task/NUMBER/FILE into `text`, which is empty if there is no such thread any more. */
static void read_task(const char *number, const char *name, char text[static 512])
{
	char path[300];
	FILE *file;

	text[0] = 0;
	snprintf(path, sizeof(path), "/proc/self/task/%s/%s", number, name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(text, 512, file))
		text[0] = 0;
	fclose(file);
}

static bool runs(const char *number)
{
	char text[512];
	unsigned flags = EXITING;
	const char *rest;

	read_task(number, "stat", text);
	rest = strrchr(text, ')');
	return rest && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & EXITING);
}

/* Calls `is` for each thread and returns for how many it was true. */
static unsigned count(bool (*is)(const char *number, const char *name, long call), const char *name, long call)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned found = 0;

	for (struct dirent *entry; (entry = readdir(folder));)
		found += entry->d_name[0] != '.' && is(entry->d_name, name, call);
	closedir(folder);
	return found;
}

static bool is_running(const char *number, const char *name, long call)
{
	(void)name;
	(void)call;
	return runs(number);
}

static bool sleeps(const char *number, const char *name, long call)
{
	char comm[512], text[512], *end;

	read_task(number, "comm", comm);
	read_task(number, "syscall", text); /* its number and arguments, or "running" */
	comm[strcspn(comm, "\n")] = 0;
	return (!name || strcmp(comm, name) == 0) && strtol(text, &end, 10) == call && end != text;
}

unsigned threads(void)
{
	return count(is_running, NULL, 0);
}

bool thread_sleeps_in(const char *name, long call)
{
	return count(sleeps, name, call) > 0;
}
