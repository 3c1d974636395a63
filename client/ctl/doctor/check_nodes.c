/* device nodes: what CUDA opens. */
#include "groups.h"
#include "machine.h"

#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define NODES_REMEDY "nvidia-modprobe -u -c 0 makes the nodes; in a container, the nvidia runtime brings them"

static void node_judge(struct findings *findings, const char *place, const char *name)
{
	struct stat info;

	if (stat(place, &info) < 0)
		finding(findings, VERDICT_FAILED, "node", name, NODES_REMEDY, "%s", strerror(errno));
	else if (access(place, R_OK | W_OK) < 0)
		finding(findings, VERDICT_FAILED, "node", name,
			"give this user's group the nodes (NVreg_DeviceFileGID), or set mode 0666",
			"this user may not open it (mode %04o, uid %u, gid %u)", (unsigned)info.st_mode & 07777,
			info.st_uid, info.st_gid);
	else if ((info.st_mode & 0006) != 0006)
		finding(findings, VERDICT_WARNING, "node", name,
			"the user gpuwm-loader and all workers must be in the group of the nodes",
			"not everybody may open it (mode %04o, uid %u, gid %u)", (unsigned)info.st_mode & 07777,
			info.st_uid, info.st_gid);
	else
		finding(findings, VERDICT_OK, "node", name, NULL, "everybody may open it (mode %04o)",
			(unsigned)info.st_mode & 07777);
}

void check_nodes(struct findings *findings, const char *socket)
{
	static const char *const others[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
	const char *mps = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char place[PLACE_BYTES], pipe[PLACE_BYTES];
	glob_t found;

	(void)socket;
	if (glob(machine_place("/dev/nvidia[0-9]*", place), 0, NULL, &found) != 0) {
		finding(findings, VERDICT_NOT_APPLICABLE, "node", NULL, NULL, "there is no /dev/nvidia*");
		return;
	}
	for (size_t i = 0; i < found.gl_pathc; i++)
		node_judge(findings, found.gl_pathv[i], strstr(found.gl_pathv[i], "/dev/nvidia"));
	globfree(&found);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		node_judge(findings, machine_place(others[i], place), others[i]);

	snprintf(pipe, sizeof(pipe), "%s/control", mps && *mps ? mps : "/tmp/nvidia-mps");
	if (machine_has(pipe))
		finding(findings, VERDICT_WARNING, "mps", pipe, "echo quit | nvidia-cuda-mps-control ends it",
			"there is a control pipe of MPS: processes of this user share its server");
	else
		finding(findings, VERDICT_NOT_APPLICABLE, "mps", pipe, NULL, "there is no control pipe of MPS");
}
