/* python: whose package `gpuwm` is in the environments of this user. The distribution that PyPI calls gpuwm is another
 * project's. Its package has the same folder as ours, so if both are installed into one environment, one overwrites files
 * of the other. */
#include "groups.h"

#include "machine.h"

#include <ctype.h>
#include <glob.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define INIT "gpuwm/__init__.py"
#define AGAIN                                                                                                         \
	"pip uninstall gpuwm gpuwm-client, then install gpuwm-client's wheel again; if you need both projects, make " \
	"an environment for each"

/* ---- one folder of packages ------------------------------------------------------ */

/* Sets ret_version to the version of a distribution that was installed into a folder of packages. name: as pip writes it
 * into the names of files. Returns false if there is no such distribution. */
static bool version_find(const char *packages, const char *name, char *ret_version, size_t size)
{
	char place[PLACE_BYTES], pattern[PLACE_BYTES + 64];
	const char *version;
	glob_t found;
	bool is_there;

	/* A version begins with a digit: gpuwm-client is no version of gpuwm. */
	snprintf(pattern, sizeof(pattern), "%s/%s-[0-9]*.dist-info", machine_place(packages, place), name);
	is_there = glob(pattern, 0, NULL, &found) == 0;
	if (is_there) {
		version = strrchr(found.gl_pathv[found.gl_pathc - 1], '/') + 1 + strlen(name) + 1;
		snprintf(ret_version, size, "%.*s", (int)(strlen(version) - strlen(".dist-info")), version);
	}
	globfree(&found);
	return is_there;
}

/* Compares the size of the package's __init__.py with the one that pip noted when it installed our distribution. Returns
 * true if they are equal, or if pip noted none, as for an editable installation. Otherwise sets ret_what to what is wrong. */
static bool init_is_ours(const char *packages, const char *version, char *ret_what, size_t size)
{
	char record[PLACE_BYTES + 96], init[PLACE_BYTES + 32], place[PLACE_BYTES], noted[256];
	const char *bytes;
	struct stat info;

	snprintf(record, sizeof(record), "%s/gpuwm_client-%s.dist-info/RECORD", packages, version);
	bytes = machine_line(record, INIT ",", noted, sizeof(noted)) ? strrchr(noted, ',') : NULL;
	if (!bytes || !isdigit(bytes[1]))
		return true;
	snprintf(init, sizeof(init), "%s/" INIT, packages);
	if (stat(machine_place(init, place), &info) < 0)
		snprintf(ret_what, size, INIT " is missing");
	else if (info.st_size != strtoll(bytes + 1, NULL, 10))
		snprintf(ret_what, size, INIT " has %lld bytes, and %s were installed", (long long)info.st_size,
			 bytes + 1);
	else
		return true;
	return false;
}

/* Nothing is found where neither distribution is. */
static void packages_judge(struct findings *findings, const char *packages)
{
	char ours[64], theirs[64], what[256];
	const bool has_ours = version_find(packages, "gpuwm_client", ours, sizeof(ours));
	const bool has_theirs = version_find(packages, "gpuwm", theirs, sizeof(theirs));

	if (has_ours && !init_is_ours(packages, ours, what, sizeof(what)))
		finding(findings, VERDICT_FAILED, "package", packages, AGAIN,
			"gpuwm-client %s is damaged: %s%s%s%s", ours, what, has_theirs ? ". gpuwm " : "",
			has_theirs ? theirs : "",
			has_theirs ? ", another project's distribution, has files in the same folder" : "");
	else if (has_ours && has_theirs)
		finding(findings, VERDICT_WARNING, "package", packages, AGAIN,
			"the package gpuwm is that of gpuwm-client %s, which has overwritten files of gpuwm %s, "
			"another project's distribution. To uninstall one of them removes files of the other",
			ours, theirs);
	else if (has_ours)
		finding(findings, VERDICT_OK, "package", packages, NULL,
			"the package gpuwm is that of gpuwm-client %s", ours);
	else if (has_theirs)
		finding(findings, VERDICT_WARNING, "package", packages,
			"for this project make another environment, and install gpuwm-client's wheel there",
			"the package gpuwm is that of gpuwm %s, another project's distribution: nothing there "
			"uses gpuwmd",
			theirs);
}

/* ---- the environments ------------------------------------------------------------ */

/* Judges every folder of packages below a prefix, such as that of a virtual environment. Returns how many there are. */
static size_t prefix_judge(struct findings *findings, const char *prefix)
{
	char lib64[PLACE_BYTES], place[PLACE_BYTES], pattern[PLACE_BYTES + 64];
	const size_t root = strlen(machine_place("", place));
	struct stat info;
	glob_t found;
	bool has_lib64;
	size_t count = 0;

	snprintf(lib64, sizeof(lib64), "%s/lib64", prefix);
	/* In a virtual environment it is a link to lib. */
	has_lib64 = lstat(machine_place(lib64, place), &info) == 0 && S_ISDIR(info.st_mode);
	snprintf(pattern, sizeof(pattern), "%s/%s/python3*/{site,dist}-packages", machine_place(prefix, place),
		 has_lib64 ? "{lib,lib64}" : "lib");
	if (glob(pattern, GLOB_BRACE, NULL, &found) == 0)
		for (; count < found.gl_pathc; count++)
			packages_judge(findings, found.gl_pathv[count] + root);
	globfree(&found);
	return count;
}

/* Sets ret_prefix to the folder above the one that a program is in; empty if there is none. */
static void prefix_of(const char *program, char ret_prefix[PLACE_BYTES])
{
	char *slash;
	int i;

	snprintf(ret_prefix, PLACE_BYTES, "%s", program);
	for (i = 0; i < 2; i++) {
		slash = strrchr(ret_prefix, '/');
		*(slash ? slash : ret_prefix) = '\0';
	}
}

/* Sets ret_prefix to the folder in which the first python3 of $PATH is installed, and ret_virtual to whether it is a virtual
 * environment. If it is none, the function follows links, as Python does. Returns false if there is no python3. */
static bool python_find(char ret_prefix[PLACE_BYTES], bool *ret_virtual)
{
	char *path = strdup(getenv("PATH") ? getenv("PATH") : ""), *rest = path, *folder, *real;
	char program[PLACE_BYTES], place[PLACE_BYTES], config[PLACE_BYTES + 16];
	const size_t root = strlen(machine_place("", place));
	bool is_there = false;

	while (!is_there && (folder = strsep(&rest, ":"))) {
		snprintf(program, sizeof(program), "%s/python3", folder);
		is_there = folder[0] == '/' && machine_has(program);
	}
	free(path);
	if (!is_there)
		return false;
	prefix_of(program, ret_prefix);
	snprintf(config, sizeof(config), "%s/pyvenv.cfg", ret_prefix);
	*ret_virtual = machine_has(config);
	real = realpath(machine_place(program, place), NULL);
	if (real && !*ret_virtual && strncmp(real, place, root) == 0)
		prefix_of(real + root, ret_prefix);
	free(real);
	return true;
}

void check_python(struct findings *findings, const char *socket)
{
	const char *environment = getenv("VIRTUAL_ENV"), *home = getenv("HOME");
	char prefix[PLACE_BYTES] = "", own[PLACE_BYTES];
	bool is_virtual = false;
	const bool is_there = python_find(prefix, &is_virtual);
	size_t folders = 0;

	(void)socket;
	if (environment && strcmp(environment, prefix) != 0)
		folders += prefix_judge(findings, environment);
	if (is_there)
		folders += prefix_judge(findings, prefix);
	/* Debian's pip installs there, and pip of a user who may not write there into the home. */
	if (is_there && !is_virtual && strcmp(prefix, "/usr") == 0)
		folders += prefix_judge(findings, "/usr/local");
	snprintf(own, sizeof(own), "%s/.local", home ? home : "");
	if (is_there && !is_virtual)
		folders += prefix_judge(findings, own);

	if (json_array_size(findings->list) == 0 && !is_there && !environment)
		finding(findings, VERDICT_NOT_APPLICABLE, "package", NULL, NULL,
			"there is no python3 in $PATH");
	else if (json_array_size(findings->list) == 0 && folders == 0)
		finding(findings, VERDICT_NOT_APPLICABLE, "package", environment ? environment : prefix,
			"activate the environment in question, or begin $PATH with its folder bin",
			"there are no packages of Python: python3 may be a script that starts another one");
	else if (json_array_size(findings->list) == 0)
		finding(findings, VERDICT_NOT_APPLICABLE, "package", environment ? environment : prefix, NULL,
			"the environment has no package gpuwm");
}
