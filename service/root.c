#include "root.h"

#include "../base/limits.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static bool process_has(gid_t gid, const gid_t *groups, int count)
{
	for (int i = 0; i < count; i++) {
		if (groups[i] == gid)
			return true;
	}
	return getegid() == gid;
}

/* Whether the user belongs to a group now that this process, which began earlier, does not have. */
static bool has_old_groups(void)
{
	gid_t *mine = malloc(2 * GROUPS_MAX * sizeof(*mine)), *now = mine ? mine + GROUPS_MAX : NULL;
	char buffer[PASSWD_BYTES];
	struct passwd entry, *user = NULL;
	int mine_count = mine ? getgroups(GROUPS_MAX, mine) : -1, now_count = GROUPS_MAX;
	bool old = false;

	if (mine_count >= 0 && getpwuid_r(geteuid(), &entry, buffer, sizeof(buffer), &user) == 0 && user &&
	    getgrouplist(user->pw_name, user->pw_gid, now, &now_count) >= 0) {
		for (int i = 0; i < now_count && !old; i++)
			old = !process_has(now[i], mine, mine_count);
	}
	free(mine);
	return old;
}

void root_access_remedy(char *ret_remedy, size_t size)
{
	if (has_old_groups())
		snprintf(
			ret_remedy, size,
			"this gpuwm-loader began before the groups of its uid %u changed: gpuwmctl reload ends "
			"those that stand by; if gpuwmd starts its loaders itself, restart gpuwmd",
			(unsigned)geteuid());
	else
		snprintf(ret_remedy, size,
			 "gpuwm-loader runs as uid %u, which may not read it: put that user into a group that "
			 "may",
			 (unsigned)geteuid());
}

/* Looking "." up needs the right to enter the folder, which a descriptor with O_PATH does not. */
static int enter(const char *path)
{
	int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
	int inside = folder < 0 ? -1 : openat(folder, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
	int r = inside < 0 ? -errno : 0;

	if (inside >= 0)
		close(inside);
	if (folder >= 0)
		close(folder);
	return r;
}

int root_check(const char *path, struct error *error)
{
	char remedy[TEXT_BYTES_MAX + 1] =
		"make the folder, mount it where gpuwm-loader runs, or change root in [loader] of gpuwmd's "
		"configuration";
	int r = enter(path);

	if (r == 0)
		return 0;
	if (r == -EACCES)
		root_access_remedy(remedy, sizeof(remedy));
	return error_set(error, r, remedy, "the root %s can't be used: %s", path, strerror(-r));
}
