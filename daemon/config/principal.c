#include "principal.h"

#include <grp.h>
#include <pwd.h>
#include <stdlib.h>
#include <string.h>

static bool parse_id(const char *text, uint32_t *ret)
{
	size_t digits = strspn(text, "0123456789");
	unsigned long long id;

	if (digits == 0 || digits > 10 || text[digits] != '\0' || (text[0] == '0' && digits > 1))
		return false; /* 010: eight or ten? */
	id = strtoull(text, NULL, 10);
	*ret = (uint32_t)id;
	return id < UINT32_MAX; /* which is no user's and no group's */
}

bool user_find(const char *name, uint32_t *ret_id)
{
	const struct passwd *user;

	if (parse_id(name, ret_id))
		return true;
	/* cppcheck-suppress getpwnamCalled ; one thread */
	user = getpwnam(name);
	if (user)
		*ret_id = user->pw_uid;
	return user;
}

bool group_find(const char *name, uint32_t *ret_id)
{
	const struct group *group;

	if (parse_id(name, ret_id))
		return true;
	/* cppcheck-suppress getgrnamCalled ; one thread */
	group = getgrnam(name);
	if (group)
		*ret_id = group->gr_gid;
	return group;
}
