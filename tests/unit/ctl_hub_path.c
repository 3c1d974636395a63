/* Where the hub's cache is, by variables: what huggingface_hub 1.33 says for the same ones. */
#include "client/ctl/hub.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[4096];
static const char *relative;

static void nothing_set(void)
{
	static const char *const variables[] = {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME",
						"XDG_CACHE_HOME"};

	for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
		unsetenv(variables[i]);
	setenv("HOME", "/home/me", 1);
	setenv("PLACE", "/data/$HOME", 1);
	unsetenv("NOWHERE");
	cr_assert_eq(chdir("/usr"), 0);
}
TestSuite(ctl_hub_path, .init = nothing_set);

static void is(const char *expected)
{
	cr_expect_eq(hub_cache_path(path, sizeof path, &relative), 0);
	cr_expect_str_eq(path, expected);
	cr_expect_null(relative, "%s", expected);
}

static void is_relative(const char *variable, const char *expected)
{
	cr_expect_eq(hub_cache_path(path, sizeof path, &relative), 0);
	cr_expect_str_eq(path, expected);
	cr_expect(relative && strcmp(relative, variable) == 0, "%s", relative ? relative : "absolute");
}

Test(ctl_hub_path, the_first_variable_counts)
{
	is("/home/me/.cache/huggingface/hub");
	setenv("XDG_CACHE_HOME", "/xdg", 1);
	is("/xdg/huggingface/hub");
	setenv("HF_HOME", "/hf", 1);
	is("/hf/hub");
	setenv("HUGGINGFACE_HUB_CACHE", "/old", 1);
	is("/old");
	setenv("HF_HUB_CACHE", "/new", 1);
	is("/new");
	setenv("HF_HUB_CACHE", "", 1);
	is("/old");
}

Test(ctl_hub_path, homes_are_expanded)
{
	const struct passwd *root = getpwuid(0), *own;
	char expected[4096];

	setenv("HF_HOME", "~", 1);
	is("/home/me/hub");
	setenv("HF_HOME", "~/hf", 1);
	is("/home/me/hf/hub");
	snprintf(expected, sizeof expected, "%s/hf/hub", root->pw_dir);
	setenv("HF_HOME", "~root/hf", 1);
	is(expected);
	setenv("HF_HOME", "/a/~", 1);
	is("/a/~/hub");
	setenv("HF_HOME", "~no-such-user/hf", 1);
	is_relative("HF_HOME", "/usr/~no-such-user/hf/hub");
	unsetenv("HF_HOME");
	unsetenv("HOME");
	own = getpwuid(geteuid());
	snprintf(expected, sizeof expected, "%s/.cache/huggingface/hub", own->pw_dir);
	is(expected);
}

Test(ctl_hub_path, variables_are_expanded_once)
{
	setenv("HF_HUB_CACHE", "$PLACE/hub", 1);
	is("/data/$HOME/hub");
	setenv("HF_HUB_CACHE", "/a/${PLACE}b$PLACE", 1);
	is("/a//data/$HOMEb/data/$HOME");
	setenv("HF_HUB_CACHE", "/a/$NOWHERE/${NOWHERE}/$/${/$$PLACE", 1);
	is("/a/$NOWHERE/${NOWHERE}/$/${/$/data/$HOME");
	setenv("HF_HUB_CACHE", "$NOWHERE/hub", 1);
	is_relative("HF_HUB_CACHE", "/usr/$NOWHERE/hub");
}

Test(ctl_hub_path, a_relative_folder_counts_from_the_working_directory)
{
	setenv("HF_HOME", "hf", 1);
	is_relative("HF_HOME", "/usr/hf/hub");
	setenv("HF_HUB_CACHE", "../hub", 1);
	is_relative("HF_HUB_CACHE", "/usr/../hub");
}

Test(ctl_hub_path, what_is_too_long_is_an_error)
{
	static char name[5000];

	memset(name, 'a', sizeof name - 1);
	name[0] = '/';
	setenv("HF_HUB_CACHE", name, 1);
	cr_expect_eq(hub_cache_path(path, sizeof path, NULL), -ENAMETOOLONG);
	setenv("HF_HUB_CACHE", "/0123456", 1);
	cr_expect_eq(hub_cache_path(path, 9, NULL), 0);
	cr_expect_eq(hub_cache_path(path, 8, NULL), -ENAMETOOLONG);
	setenv("PLACE", name, 1);
	setenv("HF_HUB_CACHE", "$PLACE", 1);
	cr_expect_eq(hub_cache_path(path, sizeof path, NULL), -ENAMETOOLONG);
}
