/* container: what of the host is in it. */
#include "groups.h"

#include "gpuwmd.h"
#include "machine.h"

#include <stdio.h>
#include <string.h>

/* Whether a file system is mounted at exactly this path. */
static bool mount_is_at(const char *path)
{
	char place[PLACE_BYTES], line[4096], at[2048];
	FILE *file = fopen(machine_place("/proc/self/mountinfo", place), "re");
	bool found = false;

	while (file && !found && fgets(line, sizeof(line), file))
		found = sscanf(line, "%*s %*s %*s %*s %2047s", at) == 1 && strcmp(at, path) == 0;
	if (file)
		fclose(file);
	return found;
}

void check_container(struct findings *findings, const char *socket)
{
	char kind[64], path[PLACE_BYTES], folder[PLACE_BYTES];

	if (!machine_container(kind, sizeof(kind))) {
		finding(findings, VERDICT_NOT_APPLICABLE, "container", NULL, NULL,
			"this is no container, as far as its files tell");
		return;
	}
	finding(findings, VERDICT_OK, "container", NULL, NULL, "%s", kind);

	gpuwmd_socket(socket, false, path, sizeof(path));
	snprintf(folder, sizeof(folder), "%s", path);
	*(strrchr(folder, '/') ? strrchr(folder, '/') : folder) = '\0';
	if (mount_is_at(path))
		finding(findings, VERDICT_WARNING, "mount", path, "mount its folder instead",
			"the socket is mounted by itself: when gpuwmd makes a new one, this stays the old one");
	else if (mount_is_at(folder))
		finding(findings, VERDICT_OK, "mount", folder, NULL, "the socket's folder is mounted");
	else if (machine_has(path))
		finding(findings, VERDICT_OK, "mount", folder, NULL,
			"the folder is the container's own: gpuwmd runs in it");
	else
		finding(findings, VERDICT_FAILED, "mount", folder,
			"mount the host's /run/gpuwm there: -v /run/gpuwm:/run/gpuwm, or a hostPath",
			"the folder of the socket is not mounted");
}
