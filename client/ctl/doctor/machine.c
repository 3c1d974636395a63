#include "machine.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *root(void)
{
	const char *given = getenv("GPUWM_DOCTOR_ROOT");

	return given ? given : "";
}

const char *machine_place(const char *path, char ret_place[PLACE_BYTES])
{
	snprintf(ret_place, PLACE_BYTES, "%s%s", root(), path);
	return ret_place;
}

bool machine_has(const char *path)
{
	char place[PLACE_BYTES];

	return access(machine_place(path, place), F_OK) == 0;
}

bool machine_read(const char *path, char *ret_text, size_t size)
{
	char place[PLACE_BYTES];
	FILE *file = fopen(machine_place(path, place), "re");
	size_t got;

	ret_text[0] = '\0';
	if (!file)
		return false;
	got = fread(ret_text, 1, size - 1, file);
	ret_text[got] = '\0';
	fclose(file);
	return true;
}

bool machine_line(const char *path, const char *key, char *ret_text, size_t size)
{
	char place[PLACE_BYTES], line[1024];
	FILE *file = fopen(machine_place(path, place), "re");
	bool found = false;

	ret_text[0] = '\0';
	while (file && !found && fgets(line, sizeof(line), file)) {
		found = strncmp(line, key, strlen(key)) == 0;
		line[strcspn(line, "\n")] = '\0';
		if (found)
			snprintf(ret_text, size, "%s", line + strlen(key) + strspn(line + strlen(key), " \t:"));
	}
	if (file)
		fclose(file);
	return found;
}

bool machine_group(const char *name, gid_t *ret_gid)
{
	char place[PLACE_BYTES];
	const struct group *entry;
	FILE *file;

	if (!*root()) {
		/* cppcheck-suppress getgrnamCalled ; there is one thread */
		entry = getgrnam(name);
		*ret_gid = entry ? entry->gr_gid : 0;
		return entry;
	}
	file = fopen(machine_place("/etc/group", place), "re");
	do
		/* cppcheck-suppress fgetgrentCalled ; there is one thread */
		entry = file ? fgetgrent(file) : NULL;
	while (entry && strcmp(entry->gr_name, name) != 0);
	*ret_gid = entry ? entry->gr_gid : 0;
	if (file)
		fclose(file);
	return entry;
}

bool machine_user(const char *name, uid_t *ret_uid, gid_t *ret_gid)
{
	char place[PLACE_BYTES];
	const struct passwd *entry;
	FILE *file;

	if (!*root()) {
		/* cppcheck-suppress getpwnamCalled ; there is one thread */
		entry = getpwnam(name);
		*ret_uid = entry ? entry->pw_uid : 0;
		*ret_gid = entry ? entry->pw_gid : 0;
		return entry;
	}
	file = fopen(machine_place("/etc/passwd", place), "re");
	do
		/* cppcheck-suppress fgetpwentCalled ; there is one thread */
		entry = file ? fgetpwent(file) : NULL;
	while (entry && strcmp(entry->pw_name, name) != 0);
	*ret_uid = entry ? entry->pw_uid : 0;
	*ret_gid = entry ? entry->pw_gid : 0;
	if (file)
		fclose(file);
	return entry;
}

bool machine_container(char *ret_kind, size_t size)
{
	char text[4096] = "";

	snprintf(ret_kind, size, "container");
	/* systemd, nspawn and podman write the kind. */
	if ((machine_read("/run/systemd/container", text, sizeof(text)) ||
	     machine_read("/run/host/container-manager", text, sizeof(text))) &&
	    *text) {
		snprintf(ret_kind, size, "%.*s", (int)strcspn(text, "\n"), text);
		return true;
	}
	if (machine_has("/run/.containerenv"))
		snprintf(ret_kind, size, "podman");
	else if (machine_has("/.dockerenv"))
		snprintf(ret_kind, size, "docker");
	else
		return getenv("KUBERNETES_SERVICE_HOST") != NULL;
	return true;
}
