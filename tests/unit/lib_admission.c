#include "client/lib/connection/dial.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* Numbers that no machine has names for. */
enum { GROUP = 61000, USER = 61001 };

static char folder[] = "/tmp/gpuwm-admission-XXXXXX", inner[64], path[96];

static void setup(void)
{
	cr_assert(mkdtemp(folder));
	snprintf(inner, sizeof(inner), "%s/inner", folder);
	snprintf(path, sizeof(path), "%s/gpuwm.sock", inner);
	cr_assert(chmod(folder, 0755) == 0 && mkdir(inner, 0755) == 0);
	close(open(path, O_CREAT | O_CLOEXEC, 0600));
}

static void teardown(void)
{
	unlink(path);
	rmdir(inner);
	rmdir(folder);
}

TestSuite(admission, .init = setup, .fini = teardown);

/* Criterion calls no fini after a skip. */
static _Noreturn void skip(const char *why)
{
	teardown();
	cr_skip_test("%s", why);
}

/* Whether the remedy that a user of this one other group gets has these words. */
static bool is_told(gid_t group, const char *words)
{
	char remedy[TEXT_BYTES_MAX + 1];
	int status;
	pid_t pid = fork();

	cr_assert(pid >= 0);
	if (pid == 0) {
		if (setgroups(1, &group) < 0 || setresgid(USER, USER, USER) < 0 ||
		    setresuid(USER, USER, USER) < 0)
			_exit(2);
		admission_remedy(path, remedy);
		fprintf(stderr, "%s\n", remedy);
		_exit(strstr(remedy, words) ? 0 : 1);
	}
	cr_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) != 2);
	return WEXITSTATUS(status) == 0;
}

#define ADMISSION_TEST(name)                                                                                   \
	static void name##_body(void);                                                                         \
	Test(admission, name)                                                                                  \
	{                                                                                                      \
		if (geteuid() != 0)                                                                            \
			skip("only root can be somebody else");                                                \
		name##_body();                                                                                 \
	}                                                                                                      \
	static void name##_body(void)

ADMISSION_TEST(the_group_of_a_socket_is_to_be_joined)
{
	cr_assert(chown(path, 0, GROUP) == 0 && chmod(path, 0660) == 0);
	cr_expect(is_told(USER, "members of the group 61000 may connect: usermod -aG 61000 USER, then log in"));
}

ADMISSION_TEST(nobody_is_told_to_join_the_group_root)
{
	cr_assert(chown(path, 0, 0) == 0 && chmod(path, 0660) == 0);
	cr_expect(is_told(USER, "the socket belongs to the group root; group, or admin_group, in [socket]"));
	cr_assert(chown(inner, 0, 0) == 0 && chmod(inner, 0750) == 0);
	cr_expect(is_told(USER, "its owner, uid 0, opens it by chmod"));
}

ADMISSION_TEST(a_group_has_its_name)
{
	struct group *group = getgrgid(1);

	cr_assert(chown(path, 0, 1) == 0 && chmod(path, 0660) == 0);
	if (!group)
		skip("there is no group 1");
	cr_expect(is_told(USER, group->gr_name));
}

ADMISSION_TEST(the_group_of_a_folder_is_to_be_joined)
{
	char words[160];

	snprintf(words, sizeof(words), "members of the group 61000 may enter %s: usermod", inner);
	cr_assert(chown(inner, 0, GROUP) == 0 && chmod(inner, 0750) == 0 && chmod(path, 0666) == 0);
	cr_expect(is_told(USER, words));
}

ADMISSION_TEST(a_folder_that_no_group_may_enter_is_named)
{
	char words[160];

	snprintf(words, sizeof(words), "your user may not enter %s: its owner, uid 0", folder);
	cr_assert(chmod(folder, 0700) == 0);
	cr_expect(is_told(USER, words));
}

ADMISSION_TEST(a_socket_that_no_group_may_use_names_the_setting)
{
	cr_assert(chmod(path, 0600) == 0);
	cr_expect(is_told(USER, "only its owner, uid 0, may connect; group and mode, or admin_group"));
}

ADMISSION_TEST(a_member_is_not_told_to_join)
{
	cr_assert(chown(path, 0, GROUP) == 0 && chmod(path, 0660) == 0);
	cr_expect(is_told(GROUP, "a security module"));
}
