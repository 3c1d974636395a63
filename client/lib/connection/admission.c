#include "dial.h"

#include "../../../proto/socket_place.h"
#include "../../../base/limits.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static bool is_member(gid_t gid)
{
	int count = getgroups(0, NULL);
	gid_t *groups = count > 0 && count <= GROUPS_MAX ? calloc((size_t)count, sizeof(*groups)) : NULL;
	bool member = gid == getegid();

	count = groups ? getgroups(count, groups) : 0;
	for (int i = 0; i < count; i++)
		member |= groups[i] == gid;
	free(groups);
	return member;
}

/* Returns whether it would help this process to join the file's group. The group root never counts: its members may do more than
 * connect. */
static bool group_would_do(const struct stat *st, mode_t group_bit)
{
	return st->st_mode & group_bit && st->st_gid != 0 && !is_member(st->st_gid);
}

static void join_remedy(const struct stat *st, const char *what, char ret_remedy[TEXT_BYTES_MAX + 1])
{
	struct passwd entry, *found = NULL;
	char group[GROUP_NAME_BYTES], buffer[PASSWD_BYTES];
	const char *user = "USER"; /* as usermod takes it */

	group_name(st->st_gid, group);
	if (getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &found) == 0 && found)
		user = entry.pw_name;
	snprintf(ret_remedy, TEXT_BYTES_MAX + 1,
		 "members of the group %s may %s: usermod -aG %s %.63s, then log in again", group, what, group,
		 user);
}

static void folder_remedy(const char *path, char ret_remedy[TEXT_BYTES_MAX + 1])
{
	char folder[sizeof(((struct sockaddr_un *)0)->sun_path)], what[sizeof(folder) + 8];
	struct stat st;
	bool barred = false;

	/* The first folder on the way that this user may not enter; else the path itself. */
	snprintf(folder, sizeof(folder), "%s", path);
	for (char *slash = strchr(folder + 1, '/'); slash && !barred; slash = strchr(slash + 1, '/')) {
		*slash = '\0';
		barred = faccessat(AT_FDCWD, folder, X_OK, AT_EACCESS) < 0;
		if (!barred)
			*slash = '/';
	}
	if (!barred || stat(folder, &st) < 0) {
		snprintf(ret_remedy, TEXT_BYTES_MAX + 1, "your user may not enter its folder");
	} else if (group_would_do(&st, S_IXGRP)) {
		snprintf(what, sizeof(what), "enter %s", folder);
		join_remedy(&st, what, ret_remedy);
	} else {
		snprintf(ret_remedy, TEXT_BYTES_MAX + 1,
			 "your user may not enter %s: its owner, uid %u, opens it by chmod", folder,
			 (unsigned)st.st_uid);
	}
}

void admission_remedy(const char *path, char ret_remedy[TEXT_BYTES_MAX + 1])
{
	struct stat st;

	if (stat(path, &st) < 0)
		folder_remedy(path, ret_remedy);
	else if (group_would_do(&st, S_IWGRP))
		join_remedy(&st, "connect", ret_remedy);
	else if (st.st_gid == 0 && !is_member(0) && st.st_mode & S_IWGRP)
		snprintf(ret_remedy, TEXT_BYTES_MAX + 1,
			 "the socket belongs to the group root; group, or admin_group, in [socket] of gpuwmd's "
			 "configuration gives it to another group");
	else if (!(st.st_mode & S_IWGRP))
		snprintf(
			ret_remedy, TEXT_BYTES_MAX + 1,
			"only its owner, uid %u, may connect; group and mode, or admin_group and admin_mode, in "
			"[socket] of gpuwmd's configuration let a group in",
			(unsigned)st.st_uid);
	else
		snprintf(ret_remedy, TEXT_BYTES_MAX + 1,
			 "its mode lets your user in: a security module such as SELinux or AppArmor refuses");
}
