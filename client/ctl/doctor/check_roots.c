/* models: the configuration, and the folders that models are loaded from. */
#include "groups.h"

#include "../answer.h"
#include "gpuwmd.h"
#include "machine.h"
#include "program.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static void config_judge(struct findings *findings, const char *socket)
{
	char config[PLACE_BYTES], program[PLACE_BYTES], place[PLACE_BYTES], text[4096];
	const char *words[] = {program, "--check-config", "--config", place, NULL}, *note;
	int status;

	if (!gpuwmd_config_find(findings, "configuration", socket, config, place, &note))
		return;
	if (!program_find("gpuwmd", program, sizeof(program))) {
		finding(findings, VERDICT_NOT_APPLICABLE, "configuration", config, NULL,
			"there is no gpuwmd beside gpuwmctl to check it%s", note);
		return;
	}
	status = program_run(words, PROGRAM_MS, true, text, sizeof(text));
	if (status == 0)
		finding(findings, VERDICT_OK, "configuration", config, NULL, "gpuwmd takes it%s", note);
	else
		finding(findings, VERDICT_FAILED, "configuration", config,
			"see gpuwmd.conf(5); then: gpuwmctl reload", "%.*s%s", (int)strcspn(text, "\n"),
			status < 0 ? strerror(-status) : text, note);
}

/* ---- whoever reads the roots -------------------------------------------------- */

struct reader {
	char name[64];
	uid_t uid;
	gid_t gid;
};

/* The loader's user: that of its service, or gpuwmd's own. */
static void reader_find(const json_t *status, struct reader *ret)
{
	char path[64], place[PLACE_BYTES];
	struct stat info;

	snprintf(ret->name, sizeof(ret->name), "gpuwm-loader");
	if (machine_has("/run/gpuwm/loader.sock") && machine_user(ret->name, &ret->uid, &ret->gid))
		return;
	snprintf(path, sizeof(path), "/proc/%llu", (unsigned long long)answer_number(status, "pid"));
	if (stat(machine_place(path, place), &info) < 0)
		info.st_uid = geteuid(), info.st_gid = getegid();
	ret->uid = info.st_uid;
	ret->gid = info.st_gid;
	snprintf(ret->name, sizeof(ret->name), "uid %u", ret->uid);
}

/* 0 or the errno of reading the folder. */
static int folder_read(const char *path)
{
	DIR *folder = opendir(path);
	int r = 0;

	if (!folder)
		return errno;
	errno = 0;
	/* cppcheck-suppress readdirCalled ; there is one thread */
	if (!readdir(folder))
		r = errno;
	closedir(folder);
	return r;
}

/* Reads the folder as that user, in a child, which root can do. */
static int folder_read_as(const char *path, const struct reader *reader)
{
	pid_t child = fork();
	int status;

	if (child == 0) {
		if (initgroups(reader->name, reader->gid) < 0 || setgid(reader->gid) < 0 ||
		    setuid(reader->uid) < 0)
			_exit(EPERM);
		_exit(folder_read(path));
	}
	if (child < 0)
		return errno;
	waitpid(child, &status, 0);
	return WEXITSTATUS(status);
}

static void root_judge(struct findings *findings, const char *path, const struct reader *reader)
{
	const bool may_be = geteuid() == 0 || geteuid() == reader->uid;
	int r = geteuid() == 0 ? folder_read_as(path, reader) : folder_read(path);

	if (r == 0 && may_be)
		finding(findings, VERDICT_OK, "root", path, NULL, "the loader (%s) can read it", reader->name);
	else if (r == 0)
		finding(findings, VERDICT_OK, "root", path, "run doctor as root to try it as the loader's user",
			"this user can read it; the loader is %s", reader->name);
	else
		finding(findings, may_be || r == ENOENT ? VERDICT_FAILED : VERDICT_NOT_APPLICABLE, "root", path,
			r == ENOENT ? "make it or mount it, or correct root in [loader] of gpuwmd.conf"
				    : "let that user read the folder and those above it (setfacl -m u:USER:rx)",
			"%s can't read it: %s", may_be ? reader->name : "this user", strerror(r));
}

void check_roots(struct findings *findings, const char *socket)
{
	json_t *status = gpuwmd_status(socket), *roots = json_object_get(status, "roots");
	struct reader reader = {0};
	const json_t *root;
	size_t i;

	config_judge(findings, socket);
	if (!status)
		finding(findings, VERDICT_NOT_APPLICABLE, "root", NULL, NULL,
			"gpuwmd, which tells the roots, can't be reached");
	else if (json_array_size(roots) == 0)
		finding(findings, VERDICT_WARNING, "root", NULL, "root in [loader] of gpuwmd.conf adds one",
			"there are no roots: only workers can publish versions, and nothing can be loaded");
	reader_find(status, &reader);
	json_array_foreach(roots, i, root) {
		root_judge(findings, json_string_value(root), &reader);
	}
	json_decref(status);
}
