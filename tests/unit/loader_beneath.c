/* What a person reads whose source can't be opened. */
#include "loader/files/roots.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/gpuwm-beneath-XXXXXX";
static char inside[128], missing[128];
static struct error error;

static void make(void)
{
	cr_assert(mkdtemp(folder));
	snprintf(inside, sizeof(inside), "%s/model", folder);
	snprintf(missing, sizeof(missing), "%s/gone", folder);
}

static void drop(void)
{
	rmdir(inside);
	rmdir(folder);
}

TestSuite(beneath, .init = make, .fini = drop);

/* Opens a path beneath this root. */
static int open_at(char *root, const char *path)
{
	char *paths[] = {root};
	const struct roots roots = {.paths = paths, .count = 1};
	int fd = -1, r = beneath_open(&roots, path, &fd, &error);

	if (r == 0)
		close(fd);
	return r;
}

static void says(const char *words, const char *remedy)
{
	cr_expect(strstr(error.message, words), "\"%s\" does not say \"%s\"", error.message, words);
	cr_expect(strstr(error.detail, remedy), "\"%s\" does not say \"%s\"", error.detail, remedy);
}

Test(beneath, a_source_that_is_not_there)
{
	cr_expect_eq(open_at(folder, inside), -ENOENT);
	says(inside, "look where gpuwm-loader looks");
	cr_assert_eq(mkdir(inside, 0700), 0);
	cr_expect_eq(open_at(folder, inside), 0);
}

/* The error is of the root, and not of the file that nobody could find there. */
Test(beneath, a_root_that_is_not_there_is_named)
{
	char path[160], words[256];

	snprintf(path, sizeof(path), "%s/model", missing);
	snprintf(words, sizeof(words), "the root %s can't be used: No such file or directory", missing);
	cr_expect_eq(open_at(missing, path), -ENOENT);
	says(words, "change root in [loader]");
}

Test(beneath, a_source_that_the_loader_may_not_read)
{
	cr_assert_eq(mkdir(inside, 0), 0);
	cr_assert_eq(chmod(folder, 0755), 0);
	if (geteuid() == 0)
		cr_assert(setegid(65534) == 0 && seteuid(65534) == 0);
	cr_expect_eq(open_at(folder, inside), -EACCES);
	says("Permission denied",
	     geteuid() == 65534 ? "gpuwm-loader runs as uid 65534" : "gpuwm-loader runs as uid");
	if (getuid() == 0)
		cr_assert(seteuid(0) == 0 && setegid(0) == 0);
}

/* nobody's group is 65534, which this process does not have. */
Test(beneath, a_loader_that_has_other_groups_than_its_user_has_now)
{
	if (geteuid() != 0) {
		drop(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can be somebody else");
	}
	cr_assert_eq(mkdir(inside, 0), 0);
	cr_assert_eq(chmod(folder, 0755), 0);
	cr_assert_eq(seteuid(65534), 0);
	cr_expect_eq(open_at(folder, inside), -EACCES);
	says("Permission denied", "began before the groups of its uid 65534 changed");
	cr_assert_eq(seteuid(0), 0);
}
