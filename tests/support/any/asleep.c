#include "asleep.h"

#include <stdio.h>
#include <sys/syscall.h>

bool thread_is_asleep(pid_t process, pid_t thread)
{
	char path[64];
	long call = -1; /* it runs, or is gone */
	FILE *file;

	snprintf(path, sizeof(path), "/proc/%d/task/%d/syscall", (int)process, (int)thread);
	file = fopen(path, "re");
	if (file && fscanf(file, "%ld", &call) != 1)
		call = -1;
	if (file)
		fclose(file);
	return call == SYS_futex || call == SYS_clock_nanosleep || call == SYS_nanosleep;
}
