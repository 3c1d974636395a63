/* Names below a folder of others: no link is followed, with openat2 and without. */
#include "base/beneath.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/gpuwm-beneath-XXXXXX";
static int folder;

static void make(int in, const char *name)
{
	int fd = openat(in, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0);
	close(fd);
}

/* top/folder/sub/file, top/victim, and links to them. */
static void setup(void)
{
	int above;

	cr_assert(mkdtemp(top) != NULL);
	above = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(mkdirat(above, "folder", 0700), 0);
	folder = openat(above, "folder", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	cr_assert_eq(mkdirat(folder, "sub", 0700), 0);
	make(above, "victim");
	make(folder, "sub/file");
	cr_assert_eq(symlinkat("sub", folder, "link"), 0);
	cr_assert_eq(symlinkat("sub/file", folder, "last"), 0);
	cr_assert_eq(symlinkat("../victim", folder, "out"), 0);
	close(above);
}

static void finish(void)
{
	char command[64];

	close(folder);
	snprintf(command, sizeof(command), "rm -r %s", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(beneath, .init = setup, .fini = finish);

static bool opens(const char *name)
{
	int fd = beneath_open_in(folder, name, O_RDONLY | O_CLOEXEC, BENEATH_NO_LINKS);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

/* The number of the first rule that does not hold; 0: all do. */
static int look(void)
{
	unsigned made = 0;
	int fd;

	if (!opens("sub/file") || !opens("."))
		return 1;
	if (opens("link/file") || opens("last") || opens("out"))
		return 2;
	if (opens("../victim") || opens("sub/../../victim") || opens("/etc/passwd"))
		return 3;
	fd = beneath_open_parent(folder, "link/new", &made);
	if (fd >= 0)
		return 4;
	fd = beneath_open_parent(folder, "a/b/new", &made);
	if (fd < 0 || made != 2)
		return 5;
	close(fd);
	fd = beneath_open_parent(folder, "sub/file", NULL);
	if (fd < 0)
		return 6;
	close(fd);
	return beneath_open_parent(folder, "nothing/file", NULL) == -ENOENT ? 0 : 7;
}

Test(beneath, follows_no_links)
{
	cr_assert_eq(look(), 0, "rule %d", look());
}

/* A kernel before 5.6, or a sandbox that does not know the call. */
static void deny_openat2(unsigned code)
{
	struct sock_filter rules[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_openat2, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	const struct sock_fprog program = {sizeof(rules) / sizeof(*rules), rules};

	if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
	    prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) < 0)
		_exit(100);
}

static int look_without(unsigned code)
{
	int status;
	pid_t child = fork();

	if (child == 0) {
		deny_openat2(code);
		_exit(beneath_open_in(folder, "sub/file", O_RDONLY | O_CLOEXEC, BENEATH_LINKS) == -(int)code
			      ? look()
			      : 99);
	}
	cr_assert_eq(waitpid(child, &status, 0), child);
	return WEXITSTATUS(status);
}

Test(beneath, follows_no_links_where_the_kernel_has_no_openat2)
{
	cr_assert_eq(look_without(ENOSYS), 0);
}

Test(beneath, follows_no_links_where_a_sandbox_refuses_openat2)
{
	cr_assert_eq(look_without(EPERM), 0);
}

Test(beneath, makes_only_files_of_its_own)
{
	struct stat st;
	int fd = beneath_make(folder, "new", O_WRONLY, 0600, &st);

	cr_assert_geq(fd, 0);
	cr_expect(S_ISREG(st.st_mode) && st.st_uid == geteuid());
	close(fd);
	cr_expect_eq(beneath_make(folder, "new", O_WRONLY, 0600, &st), -EEXIST);
	cr_expect_eq(beneath_make(folder, "out", O_WRONLY, 0600, &st), -EEXIST);
	cr_assert_eq(mkfifoat(folder, "fifo", 0600), 0);
	cr_expect_eq(beneath_make(folder, "fifo", O_WRONLY, 0600, &st), -EEXIST,
		     "it does not wait for a reader");
}
