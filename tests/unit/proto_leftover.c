/* What killed processes left: it goes if it is this user's, and if the process that made it is gone. */
#include "base/leftover.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char top[] = "/tmp/gpuwm-leftover-XXXXXX";
static int folder;
static struct leftovers left;

static void setup(void)
{
	cr_assert(mkdtemp(top) != NULL);
	folder = open(top, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static void finish(void)
{
	char command[64];

	close(folder);
	snprintf(command, sizeof(command), "rm -r %s", top);
	cr_assert_eq(system(command), 0);
}

TestSuite(leftover, .init = setup, .fini = finish);

static void make(const char *name)
{
	int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

	cr_assert_geq(fd, 0, "%s: %s", name, strerror(errno));
	close(fd);
}

static bool is_there(const char *name)
{
	return faccessat(folder, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* The text of a process that has ended. */
static const char *gone(void)
{
	static char text[LEFTOVER_MAKER_BYTES];
	int ends[2];
	pid_t child;

	cr_assert_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		leftover_maker_write(text);
		_exit(write(ends[1], text, sizeof(text)) == sizeof(text) ? 0 : 1);
	}
	cr_assert_eq(read(ends[0], text, sizeof(text)), (ssize_t)sizeof(text));
	cr_assert_eq(waitpid(child, NULL, 0), child);
	close(ends[0]);
	close(ends[1]);
	return text;
}

static const char *name_by(const char *maker)
{
	static char name[NAME_MAX + 1];

	snprintf(name, sizeof(name), ".model.safetensors.by-%s.0123456789abcdef.tmp", maker);
	return name;
}

Test(leftover, of_a_process_that_is_gone_is_removed)
{
	const char *name = name_by(gone());

	make(name);
	make("model.safetensors");
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect_eq(left.removed, 1);
	cr_expect_eq(left.unknown, 0);
	cr_expect(!is_there(name));
	cr_expect(is_there("model.safetensors"));
}

Test(leftover, of_a_process_that_lives_stays)
{
	char name[NAME_MAX + 1];

	cr_assert_eq(leftover_name("tokenizer/a.json", name), 0);
	cr_expect(strncmp(name, ".tokenizer-a.json.by-", 21) == 0 && !strchr(name, '/'), "%s", name);
	make(name);
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect_eq(left.removed + left.unknown, 0);
	cr_expect(is_there(name));
}

/* The kernel gives pids to other processes again. */
Test(leftover, of_a_pid_that_another_process_has_now_is_removed)
{
	char maker[LEFTOVER_MAKER_BYTES];

	leftover_maker_write(maker);
	snprintf(strrchr(maker, '-'), 8, "-12345");
	cr_expect_eq(leftover_maker_look(maker), MAKER_GONE);
	make(name_by(maker));
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect_eq(left.removed, 1);
}

/* A folder of a network file system has files of other machines, and a shared one of other containers. */
Test(leftover, of_another_host_or_container_stays_and_is_told)
{
	const char *of = gone();
	char host[LEFTOVER_MAKER_BYTES], container[LEFTOVER_MAKER_BYTES];

	snprintf(host, sizeof(host), "%s", of);
	host[0] = host[0] == 'f' ? 'e' : 'f';
	snprintf(container, sizeof(container), "%s", of);
	container[17] = container[17] == '9' ? '8' : '9'; /* the first digit of the pid namespace */
	make(name_by(host));
	make(name_by(container));
	make(".model.safetensors.0123456789abcdef.tmp"); /* of an earlier release */
	make(name_by("unknown-0-1-0"));
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect_eq(left.removed, 0);
	cr_expect_eq(left.unknown, 3);
	cr_expect(strncmp(left.example, ".model.safetensors.by-", 22) == 0, "%s", left.example);
}

Test(leftover, of_another_user_and_what_is_no_file_stays)
{
	const char *name = name_by(gone());

	if (geteuid() != 0)
		cr_skip("only root can make files of another user");
	make(name);
	cr_assert_eq(fchownat(folder, name, 12345, (gid_t)-1, 0), 0);
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect_eq(left.removed + left.unknown, 0);
	cr_expect(is_there(name));
	unlinkat(folder, name, 0);
	cr_assert_eq(symlinkat("/etc/passwd", folder, name), 0);
	cr_assert_eq(leftovers_remove(folder, &left), 0);
	cr_expect(is_there(name));
}
