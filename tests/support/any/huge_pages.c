#include "huge_pages.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

bool huge_pages_advised(void)
{
	FILE *file = fopen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "re");
	char line[128] = "";
	bool advised = file && fgets(line, sizeof(line), file) && strstr(line, "[advise]");

	if (file)
		fclose(file);
	return advised;
}

long huge_pages_kilobytes(void)
{
	FILE *file = fopen("/proc/meminfo", "re");
	char line[128];
	long kilobytes = 0;

	cr_assert(file != NULL);
	while (fgets(line, sizeof(line), file))
		sscanf(line, "ShmemHugePages: %ld", &kilobytes);
	fclose(file);
	return kilobytes;
}
