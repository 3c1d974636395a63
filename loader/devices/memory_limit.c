#include "memory_limit.h"

#include "../../base/limits.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A group's path below a mount point, and the name of a file in it. */
#define GROUP_PATH_BYTES (2 * PATH_BYTES_MAX)

static uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* The number that the file begins with. "max", and a file that is not there, are no limit. */
static uint64_t read_limit(const char *folder, const char *name)
{
	char path[GROUP_PATH_BYTES + 64];
	uint64_t limit = MEMORY_LIMIT_NONE;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return limit;
	if (fscanf(file, "%" SCNu64, &limit) != 1)
		limit = MEMORY_LIMIT_NONE;
	fclose(file);
	return limit;
}

/* What version 1 says of all groups around this one, with those above the root of a container. */
static uint64_t read_hierarchical(const char *folder)
{
	char path[GROUP_PATH_BYTES + 64], line[256];
	uint64_t limit = MEMORY_LIMIT_NONE, found;
	FILE *file;

	snprintf(path, sizeof(path), "%s/memory.stat", folder);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "hierarchical_memory_limit %" SCNu64, &found) == 1)
			limit = found;
	}
	if (file)
		fclose(file);
	return limit;
}

/* Of the group and of those around it, up to the mount point, which has `top` bytes of the path. */
static uint64_t limit_of_group(char *group, size_t top, bool is_v2)
{
	uint64_t limit = is_v2 ? MEMORY_LIMIT_NONE : read_hierarchical(group);

	for (;;) {
		char *slash = strrchr(group, '/');

		limit = smaller(limit, read_limit(group, is_v2 ? "memory.max" : "memory.limit_in_bytes"));
		if (strlen(group) <= top || !slash)
			return limit;
		*slash = '\0';
	}
}

/* Whether the word is one of those that a comma divides. */
static bool has_word(const char *list, const char *word)
{
	const size_t size = strlen(word);

	while (list) {
		if (strncmp(list, word, size) == 0 && (list[size] == ',' || list[size] == '\0'))
			return true;
		list = strchr(list, ',');
		list += list != NULL;
	}
	return false;
}

/* Finds the process's group of a hierarchy: "4:memory:/a/b" of version 1, "0::/a/b" of version 2. */
static bool find_group(const char *root, bool is_v2, char group[PATH_BYTES_MAX + 1])
{
	char path[PATH_BYTES_MAX + 1], *line = NULL;
	size_t room = 0;
	bool found = false;
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/self/cgroup", root);
	file = fopen(path, "re");
	while (file && !found && getline(&line, &room, file) > 0) {
		char *controllers = strchr(line, ':'), *name;

		name = controllers ? strchr(controllers + 1, ':') : NULL;
		if (!name)
			continue;
		*name++ = '\0';
		name[strcspn(name, "\n")] = '\0';
		found = is_v2 ? controllers[1] == '\0' : has_word(controllers + 1, "memory");
		if (found)
			snprintf(group, PATH_BYTES_MAX + 1, "%s", name);
	}
	free(line);
	if (file)
		fclose(file);
	return found;
}

/* A mount of /proc/self/mountinfo: "31 23 0:28 ROOT POINT OPTIONS … - TYPE SOURCE SUPER_OPTIONS". */
struct mounted {
	char *root, *point, *type, *options;
};

static bool mount_split(char *line, struct mounted *ret)
{
	char *dash = strstr(line, " - "), *rest = NULL, *field;
	unsigned number = 0;

	if (!dash)
		return false;
	*dash = '\0';
	*ret = (struct mounted){0};
	for (field = strtok_r(line, " ", &rest); field; field = strtok_r(NULL, " ", &rest), number++) {
		if (number == 3)
			ret->root = field;
		else if (number == 4)
			ret->point = field;
	}
	ret->type = strtok_r(dash + 3, " \n", &rest);
	strtok_r(NULL, " \n", &rest); /* the source */
	ret->options = strtok_r(NULL, " \n", &rest);
	return ret->point && ret->type && ret->options;
}

/* The part of the group's path that lies below what is mounted: a container may see its own group as the root of the mount. A group that
 * is not below it has the mount point. */
static const char *below(const struct mounted *mounted, const char *group)
{
	const size_t size = strcmp(mounted->root, "/") == 0 ? 0 : strlen(mounted->root);

	if (strncmp(group, mounted->root, size) != 0 || (group[size] != '/' && group[size] != '\0') ||
	    strstr(group, "/..") || strcmp(group + size, "/") == 0)
		return "";
	return group + size;
}

static uint64_t limit_of_hierarchy(const char *root, bool is_v2)
{
	char path[PATH_BYTES_MAX + 1], group[PATH_BYTES_MAX + 1], folder[GROUP_PATH_BYTES + 1], *line = NULL;
	uint64_t limit = MEMORY_LIMIT_NONE;
	struct mounted mounted;
	size_t room = 0;
	FILE *file;

	if (!find_group(root, is_v2, group))
		return limit;
	snprintf(path, sizeof(path), "%s/proc/self/mountinfo", root);
	file = fopen(path, "re");
	while (file && getline(&line, &room, file) > 0) {
		size_t top;

		if (!mount_split(line, &mounted) || strcmp(mounted.type, is_v2 ? "cgroup2" : "cgroup") != 0 ||
		    (!is_v2 && !has_word(mounted.options, "memory")))
			continue;
		top = (size_t)snprintf(folder, sizeof(folder), "%s%s", root, mounted.point);
		if (top >= sizeof(folder))
			continue;
		snprintf(folder + top, sizeof(folder) - top, "%s", below(&mounted, group));
		limit = smaller(limit, limit_of_group(folder, top, is_v2));
	}
	free(line);
	if (file)
		fclose(file);
	return limit;
}

uint64_t memory_limit(const char *root)
{
	/* Both may be mounted; the memory is then in one of them. */
	return smaller(limit_of_hierarchy(root, true), limit_of_hierarchy(root, false));
}

int memory_of_host(const char *root, uint64_t *ret_total, uint64_t *ret_available, struct error *error)
{
	uint64_t total = 0, available = 0, kib, limit;
	char path[PATH_BYTES_MAX + 1], line[256];
	FILE *file;

	snprintf(path, sizeof(path), "%s/proc/meminfo", root);
	file = fopen(path, "re");
	while (file && fgets(line, sizeof(line), file)) {
		if (sscanf(line, "MemTotal: %" SCNu64 " kB", &kib) == 1)
			total = KIB(kib);
		else if (sscanf(line, "MemAvailable: %" SCNu64 " kB", &kib) == 1)
			available = KIB(kib);
	}
	if (file)
		fclose(file);
	if (total == 0)
		return error_set(error, -EIO, NULL, "/proc/meminfo does not tell the machine's memory");
	limit = memory_limit(root);
	*ret_total = smaller(total, limit);
	*ret_available = smaller(available, limit);
	return 0;
}
