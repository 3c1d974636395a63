#include "users.h"

#include <pwd.h>
#include <stdio.h>

#define USERS_MAX 64 /* on one machine; beyond them each is asked for again */

const char *users_name(unsigned uid)
{
	static struct {
		unsigned uid;
		char name[33];
	} known[USERS_MAX];
	static unsigned count, next;
	const struct passwd *entry;

	for (unsigned i = 0; i < count; i++)
		if (known[i].uid == uid)
			return known[i].name;
	/* cppcheck-suppress getpwuidCalled ; there is one thread that asks */
	entry = getpwuid(uid);
	next = count < USERS_MAX ? count++ : (next + 1) % USERS_MAX;
	known[next].uid = uid;
	if (entry)
		snprintf(known[next].name, sizeof(known[next].name), "%s", entry->pw_name);
	else
		snprintf(known[next].name, sizeof(known[next].name), "%u", uid);
	return known[next].name;
}
