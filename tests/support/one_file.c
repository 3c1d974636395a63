/* One file's tests of a program that has many: GPUWM_TEST_FILE=daemon_device. scripts/unit sets it. */
#include <criterion/criterion.h>
#include <criterion/hooks.h>

#include <stdlib.h>
#include <string.h>

static bool is_of(const char *path, const char *name)
{
	const char *file = strrchr(path, '/');
	const size_t length = strlen(name);

	file = file ? file + 1 : path;
	return strncmp(file, name, length) == 0 && strcmp(file + length, ".c") == 0;
}

ReportHook(PRE_ALL)(struct criterion_test_set *set)
{
	const char *name = getenv("GPUWM_TEST_FILE");

	if (!name)
		return;
	FOREACH_SET (struct criterion_suite_set *suite, set->suites) {
		FOREACH_SET (struct criterion_test *test, suite->tests) {
			if (!is_of(test->data->file_, name))
				test->data->disabled = true;
		}
	}
}
