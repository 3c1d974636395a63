#include "threads.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXITING 0x4u /* PF_EXITING of the kernel */

/* Reads /proc/PROCESS/task/NUMBER/FILE into `text`, which is empty if there is no such thread any more. */
static void read_task(pid_t process, const char *number, const char *name, char text[static 512])
{
	char path[300];
	FILE *file;

	text[0] = 0;
	snprintf(path, sizeof(path), "/proc/%d/task/%s/%s", (int)process, number, name);
	file = fopen(path, "re");
	if (!file)
		return;
	if (!fgets(text, 512, file))
		text[0] = 0;
	fclose(file);
}

static bool is_running(pid_t process, const char *number)
{
	char text[512];
	unsigned flags = EXITING;
	const char *rest;

	read_task(process, number, "stat", text);
	rest = strrchr(text, ')');
	return rest && sscanf(rest, ") %*c %*d %*d %*d %*d %*d %u", &flags) == 1 && !(flags & EXITING);
}

/* The number of the system call in which the thread sleeps; -1: it runs, or is gone. */
static long call_of(pid_t process, const char *number)
{
	char text[512], *end;
	long call;

	read_task(process, number, "syscall", text); /* its number and arguments, or "running" */
	call = strtol(text, &end, 10);
	return end != text ? call : -1;
}

static bool has_name(pid_t process, const char *number, const char *name)
{
	char comm[512];

	read_task(process, number, "comm", comm);
	comm[strcspn(comm, "\n")] = 0;
	return strcmp(comm, name) == 0;
}

unsigned threads(void)
{
	DIR *folder = opendir("/proc/self/task");
	unsigned found = 0;

	for (struct dirent *entry; (entry = readdir(folder));)
		found += entry->d_name[0] != '.' && is_running(getpid(), entry->d_name);
	closedir(folder);
	return found;
}

bool thread_sleeps_in(pid_t process, const char *name, long call)
{
	bool found = false;
	char path[64];
	DIR *folder;

	snprintf(path, sizeof(path), "/proc/%d/task", (int)process);
	folder = opendir(path);
	for (struct dirent *entry; folder && !found && (entry = readdir(folder));)
		found = entry->d_name[0] != '.' && call_of(process, entry->d_name) == call &&
			(!name || has_name(process, entry->d_name, name));
	if (folder)
		closedir(folder);
	return found;
}

bool thread_is_asleep(pid_t process, pid_t thread)
{
	char number[16];
	long call;

	snprintf(number, sizeof(number), "%d", (int)thread);
	call = call_of(process, number);
	return call == SYS_futex || call == SYS_clock_nanosleep || call == SYS_nanosleep;
}
