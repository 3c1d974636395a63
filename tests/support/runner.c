/* What each program of Criterion's has besides its tests. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* ---- one file's tests of a program that has many: GPUWM_TEST_FILE=daemon_device, which scripts/unit sets ---- */

static bool is_of(const char *path, const char *name)
{
	const char *file = strrchr(path, '/');
	const size_t length = strlen(name);

	file = file ? file + 1 : path;
	return strncmp(file, name, length) == 0 && strcmp(file + length, ".c") == 0;
}

/* ---- open files ---- */

/* The kernel counts the descriptors that a user without privileges has in flight over all of the user's processes, and compares them
 * with the soft limit of the one that sends. With the usual 1,024 one test would make the messages of all others fail. */
#define OPEN_FILES 20000

static void raise_open_files(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) < 0 || limit.rlim_cur >= OPEN_FILES)
		return;
	limit.rlim_cur = limit.rlim_max < OPEN_FILES ? limit.rlim_max : OPEN_FILES;
	setrlimit(RLIMIT_NOFILE, &limit);
}

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
	const char *name = getenv("GPUWM_TEST_FILE");

	raise_open_files();
	if (!name)
		return;
	FOREACH_SET(struct criterion_suite_set * suite, set->suites)
	{
		FOREACH_SET(struct criterion_test * test, suite->tests)
		{
			if (!is_of(test->data->file_, name))
				test->data->disabled = true;
		}
	}
}

/* ---- libgit2 ---- */

/* Criterion begins libgit2 in the process of each test, and libgit2 then reads all certificates of the machine: a third of the time of
 * most tests. Criterion needs it only to show how two texts differ, so it begins when that is asked. */

#define FOR_CRITERION __attribute__((visibility("default")))

FOR_CRITERION int git_libgit2_init(void);
FOR_CRITERION int git_libgit2_init(void)
{
	return 1;
}

FOR_CRITERION int git_libgit2_shutdown(void);
FOR_CRITERION int git_libgit2_shutdown(void)
{
	return 0;
}

FOR_CRITERION int git_diff_buffers(const void *old, size_t old_bytes, const char *old_name, const void *new,
				   size_t new_bytes, const char *new_name, const void *options, void *on_file,
				   void *on_binary, void *on_hunk, void *on_line, void *data);
FOR_CRITERION int git_diff_buffers(const void *old, size_t old_bytes, const char *old_name, const void *new,
				   size_t new_bytes, const char *new_name, const void *options, void *on_file,
				   void *on_binary, void *on_hunk, void *on_line, void *data)
{
	int (*begin)(void) = (int (*)(void))dlsym(RTLD_NEXT, "git_libgit2_init");
	__typeof__(&git_diff_buffers) diff =
		(__typeof__(&git_diff_buffers))dlsym(RTLD_NEXT, "git_diff_buffers");

	begin();
	return diff(old, old_bytes, old_name, new, new_bytes, new_name, options, on_file, on_binary, on_hunk,
		    on_line, data);
}
