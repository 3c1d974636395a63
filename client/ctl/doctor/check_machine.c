/* machine: what kind of machine this is, and so what gpuwm can do on it. Files say so; nothing is tried. And container. */
#include "groups.h"

#include "machine.h"
#include "gpuwmd.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define GPUS "/proc/driver/nvidia/gpus" /* NVIDIA's driver has a folder there for each GPU */
#define SYSTEMD "/run/systemd/system" /* sd_booted(3) looks there */
#define RELEASE "/proc/sys/kernel/osrelease" /* WSL's kernels have "microsoft" in it */
#define WSL_GPU "/dev/dxg" /* WSL has no /proc/driver/nvidia: GPUs are behind this node */
#define VERSION "/proc/version"
/* gVisor tells every program this kernel, whatever the host has: pkg/sentry/kernel/version.go. */
#define GVISOR "#1 SMP Sun Jan 10 15:06:54 PST 2016"

static unsigned gpus_count(void)
{
	char place[PLACE_BYTES];
	DIR *folder = opendir(machine_place(GPUS, place));
	const struct dirent *entry;
	unsigned count = 0;

	/* cppcheck-suppress readdirCalled ; there is one thread */
	while (folder && (entry = readdir(folder)))
		count += entry->d_name[0] != '.';
	if (folder)
		closedir(folder);
	return count;
}

static void gpus_tell(struct findings *findings)
{
	const unsigned count = gpus_count();

	if (count > 0)
		finding(findings, VERDICT_OK, "gpu", GPUS, NULL, "NVIDIA's driver shows %u GPU%s", count,
			count == 1 ? "" : "s");
	else if (machine_has(WSL_GPU))
		finding(findings, VERDICT_OK, "gpu", WSL_GPU, NULL, "WSL hands through the GPUs of Windows");
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "gpu", GPUS, NULL,
			"there is no NVIDIA GPU here, or no driver: gpuwm shares weights in host memory");
}

static void virtual_tell(struct findings *findings)
{
	char text[512] = "", kind[64];

	if (machine_container(kind, sizeof(kind)))
		finding(findings, VERDICT_OK, "container", NULL, NULL, "this is a container (%s)", kind);
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "container", NULL, NULL, "this is no container");
	if (machine_read(RELEASE, text, sizeof(text)) &&
	    (strstr(text, "microsoft") || strstr(text, "Microsoft")))
		finding(findings, VERDICT_WARNING, "wsl", RELEASE,
			"run gpuwm on Linux itself to share GPU memory",
			"this is WSL, whose driver may lack what sharing needs: the group driver tries it");
	if (machine_read(VERSION, text, sizeof(text)) && strstr(text, GVISOR))
		finding(findings, VERDICT_WARNING, "gvisor", VERSION,
			"run gpuwmd outside; the group kernel tries what gpuwm needs",
			"this is a sandbox of gVisor, which has a kernel of its own");
}

void check_machine(struct findings *findings, const char *socket)
{
	(void)socket;
	gpus_tell(findings);
	if (machine_has(SYSTEMD))
		finding(findings, VERDICT_OK, "systemd", SYSTEMD, NULL,
			"it can keep gpuwmd's descriptors over restarts");
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "systemd", SYSTEMD, NULL,
			"systemd does not run here: gpuwm-keeper keeps gpuwmd's descriptors");
	virtual_tell(findings);
}

/* ---- container: what of the host is in it ---- */

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
