/* users: the system's users and groups of gpuwm, and what this user belongs to. */
#include "groups.h"
#include "machine.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define GROUPS_MAX 65536 /* NGROUPS_MAX of Linux */

static bool process_has_group(gid_t gid)
{
	static gid_t list[GROUPS_MAX];
	int count = getgroups(GROUPS_MAX, list);

	for (int i = 0; i < count; i++)
		if (list[i] == gid)
			return true;
	return getegid() == gid;
}

static void group_judge(struct findings *findings, const char *name, const char *for_what)
{
	char remedy[200];
	gid_t gid;

	if (!machine_group(name, &gid))
		finding(findings, VERDICT_WARNING, "group", name,
			"systemd-sysusers makes it, from the file gpuwm.conf that the package installs",
			"there is no such group, but others of gpuwm");
	else if (geteuid() == 0)
		finding(findings, VERDICT_OK, "group", name, NULL, "%s; root needs no group", for_what);
	else if (process_has_group(gid))
		finding(findings, VERDICT_OK, "group", name, NULL, "uid %u belongs to it: %s", geteuid(),
			for_what);
	else {
		snprintf(remedy, sizeof(remedy), "if it should: usermod -aG %s USER, then log in anew", name);
		finding(findings, VERDICT_NOT_APPLICABLE, "group", name, remedy,
			"uid %u does not belong to it: %s", geteuid(), for_what);
	}
}

static void user_judge(struct findings *findings, const char *name)
{
	uid_t uid;
	gid_t gid;

	if (machine_user(name, &uid, &gid))
		finding(findings, VERDICT_OK, "user", name, NULL, "uid %u, gid %u", uid, gid);
	else
		finding(findings, VERDICT_WARNING, "user", name,
			"systemd-sysusers makes it, from the file gpuwm.conf that the package installs",
			"there is no such user, but the group gpuwm");
}

void check_users(struct findings *findings, const char *socket)
{
	gid_t gid;

	(void)socket;
	if (!machine_group("gpuwm", &gid)) {
		finding(findings, VERDICT_NOT_APPLICABLE, "group", "gpuwm", NULL,
			"gpuwm is not installed as a service of this system: only the user of gpuwmd "
			"and root operate it");
		return;
	}
	group_judge(findings, "gpuwm", "attach as a worker");
	group_judge(findings, "gpuwm-publish", "publish versions");
	group_judge(findings, "gpuwm-observe", "see jobs, clients and metrics");
	group_judge(findings, "gpuwm-admin", "operate gpuwmd");
	user_judge(findings, "gpuwm");
	user_judge(findings, "gpuwm-loader");
}
