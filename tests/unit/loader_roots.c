/* The roots that a loader of a service reads for itself. */
#include "../../loader/files/roots.h"
#include "../../base/limits.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/loader/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct roots roots;
static struct error error;
static int fds_before;

static void open_folder(void)
{
	folder_make();
	fds_before = fd_count();
}

static void close_folder(void)
{
	roots_clear(&roots);
	folder_remove();
}

TestSuite(roots, .init = open_folder, .fini = close_folder);

static int read_file(const char *path)
{
	int r = roots_read(path, &roots, &error);

	cr_assert_eq(fd_count(), fds_before, "descriptors are left open");
	return r;
}

static int read_text(const char *text)
{
	write_bytes(in_folder("gpuwmd.conf"), text, strlen(text));
	return read_file(in_folder("gpuwmd.conf"));
}

static void expect_error(int code, int expected, const char *says, const char *remedy)
{
	cr_expect_eq(code, expected, "%d", code);
	cr_expect(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_expect(strstr(error.detail, remedy), "\"%s\" does not say \"%s\"", error.detail, remedy);
	cr_expect_eq(roots.count, 0);
	cr_expect_null(roots.paths);
}

Test(roots, are_what_gpuwmds_file_says)
{
	cr_assert_eq(read_text("[socket]\npath = /run/x.sock\n[loader]\npath = /bin/loader\nroot = /models\n"
			       "root = /home/m ; theirs\n[budget]\nhost = 1G\nroot = /not/this\n"),
		     0, "%s", error.message);
	cr_assert_eq(roots.count, 2);
	cr_expect_str_eq(roots.paths[0], "/models");
	cr_expect_str_eq(roots.paths[1], "/home/m");
}

Test(roots, keys_of_the_future_are_skipped)
{
	cr_assert_eq(read_text("[cache]\nsize = 7\n[loader]\nthreads = 9\nroot = /models\n"), 0, "%s",
		     error.message);
	cr_assert_eq(roots.count, 1);
}

Test(roots, a_relative_root_is_an_error)
{
	expect_error(read_text("[loader]\nroot = /models\nroot = models\n"), -EINVAL,
		     "gpuwmd.conf:3: root = models: is no absolute path", "");
}

Test(roots, a_line_that_is_none_is_an_error)
{
	expect_error(read_text("[loader]\nroot = /models\nroot\nroot = /more\n"), -EINVAL,
		     "gpuwmd.conf:3: this is neither [section] nor key = value",
		     "correct the line, or begin it with ; as a comment");
}

Test(roots, a_line_that_is_too_long_is_no_shorter_root)
{
	char text[1024];

	snprintf(text, sizeof(text), "[loader]\nroot = /%0500d\n", 0);
	expect_error(read_text(text), -EINVAL, "gpuwmd.conf:2: the line has more than", "shorter");
}

Test(roots, no_more_than_the_limit)
{
	char text[4096] = "[loader]\n";

	for (int i = 0; i < ROOTS_MAX; i++)
		sprintf(text + strlen(text), "root = /%d\n", i);
	cr_assert_eq(read_text(text), 0);
	cr_assert_eq(roots.count, ROOTS_MAX);
	roots_clear(&roots);
	strcat(text, "root = /more\n");
	expect_error(read_text(text), -EINVAL, "root = /more: is one too many: at most 32", "");
}

Test(roots, none_is_an_error_with_the_remedy)
{
	expect_error(read_text("[loader]\npath = /bin/loader\n"), -EACCES, "gpuwmd.conf names no roots",
		     "root in [loader]");
	expect_error(read_file(NULL), -EACCES, "it has no roots", "--config FILE");
}

Test(roots, a_zero_byte_hides_nothing)
{
	const char *path = in_folder("gpuwmd.conf");

	write_bytes(path, "[loader]\nroot = /a\0/b", 21); /* the last line, without an end */
	expect_error(read_file(path), -EINVAL,
		     "gpuwmd.conf:2: the line has more than 198 bytes, or a zero byte",
		     "make the path shorter");
}

Test(roots, a_file_that_is_not_there)
{
	expect_error(read_file("/nonexistent"), -ENOENT, "configuration /nonexistent: No such file",
		     "--config");
}

Test(roots, a_folder_is_no_file)
{
	expect_error(read_file(folder), -EIO, "Is a directory", "");
}

Test(roots, any_allocation_may_fail)
{
	const char *path = in_folder("gpuwmd.conf");
	unsigned failed = 0;
	int r;

	write_bytes(path, "[loader]\nroot = /a\nroot = /b\n", 28);
	for (unsigned n = 1; fail_alloc_arm(n), r = roots_read(path, &roots, &error), fail_alloc_disarm();
	     n++) {
		/* The C library does without a buffer for the file. */
		cr_assert(r == -ENOMEM || (r == 0 && roots.count == 2), "%u: %d", n, r);
		failed += r == -ENOMEM;
		roots_clear(&roots);
	}
	cr_assert_eq(r, 0);
	cr_expect_eq(roots.count, 2);
	cr_expect_geq(failed, 2); /* a root each; inih's own are hidden from a sanitizer's build */
	cr_expect_eq(fd_count(), fds_before);
}
