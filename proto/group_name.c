#include "group_name.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>

/* An entry holds the names of all members of the group: the largest buffer has room for 50,000
 * names of 20 bytes. */
#define ENTRY_BYTES_FIRST 1024
#define ENTRY_BYTES_MAX (1024 * 1024)

void group_name(gid_t gid, char ret_name[GROUP_NAME_BYTES])
{
	struct group entry, *found = NULL;
	char *buffer = NULL;
	int r = ERANGE;

	snprintf(ret_name, GROUP_NAME_BYTES, "%u", (unsigned)gid);
	for (size_t bytes = ENTRY_BYTES_FIRST; r == ERANGE && bytes <= ENTRY_BYTES_MAX; bytes *= 4) {
		free(buffer);
		buffer = malloc(bytes);
		r = buffer ? getgrgid_r(gid, &entry, buffer, bytes, &found) : ENOMEM;
	}
	if (r == 0 && found)
		snprintf(ret_name, GROUP_NAME_BYTES, "%s", found->gr_name);
	free(buffer);
}
