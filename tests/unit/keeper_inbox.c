#include "keeper/notify.h"
#include "base/leftover.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct inbox inbox;
static struct inbox_message message;
static int sender, fds_before;

static void setup(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	fds_before = fd_count();
	cr_assert_eq(inbox_open(&inbox, "/tmp"), 0);
	sender = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, inbox.path);
	cr_assert_eq(connect(sender, (struct sockaddr *)&address, sizeof(address)), 0);
}

static void finish(void)
{
	close(sender);
	inbox_close(&inbox);
	cr_assert_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(keeper_inbox, .init = setup);

static int send_fds(const void *text, size_t bytes, size_t count)
{
	union {
		char bytes[CMSG_SPACE(300 * sizeof(int))];
		struct cmsghdr align;
	} control = {0};
	struct iovec iov = {(void *)text, bytes};
	struct msghdr header = {.msg_iov = &iov, .msg_iovlen = 1};

	if (count > 0) {
		header.msg_control = control.bytes;
		header.msg_controllen = CMSG_SPACE(count * sizeof(int));
		*CMSG_FIRSTHDR(&header) = (struct cmsghdr){.cmsg_level = SOL_SOCKET,
							   .cmsg_type = SCM_RIGHTS,
							   .cmsg_len = CMSG_LEN(count * sizeof(int))};
		for (size_t i = 0; i < count; i++)
			((int *)CMSG_DATA(CMSG_FIRSTHDR(&header)))[i] = STDERR_FILENO;
	}
	return sendmsg(sender, &header, 0) < 0 ? -errno : 0;
}

Test(keeper_inbox, a_message_comes_with_its_sender_and_descriptors)
{
	cr_assert_eq(send_fds("READY=1", 7, 3), 0);
	cr_assert_eq(inbox_receive(&inbox, &message), 1);
	cr_expect_eq(message.sender, getpid());
	cr_expect(message.bytes == 7 && memcmp(message.text, "READY=1", 7) == 0);
	cr_assert_eq(message.fd_count, 3);
	cr_expect(!message.text_cut && !message.fds_cut);
	for (size_t i = 0; i < 3; i++)
		cr_expect(fcntl(message.fds[i], F_GETFD) & FD_CLOEXEC);
	close(message.fds[1]);
	message.fds[1] = -1;
	inbox_message_clear(&message);
	cr_expect_eq(inbox_receive(&inbox, &message), 0);
	finish();
}

Test(keeper_inbox, a_message_of_another_process_names_that)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(send_fds("x", 1, 0) == 0 ? 0 : 1);
	waitpid(pid, NULL, 0);
	cr_assert_eq(inbox_receive(&inbox, &message), 1);
	cr_expect_eq(message.sender, pid, "and after its death, too");
	finish();
}

Test(keeper_inbox, an_empty_message_is_one)
{
	cr_assert_eq(send_fds("", 0, 2), 0);
	cr_assert_eq(inbox_receive(&inbox, &message), 1);
	cr_expect(message.bytes == 0 && message.fd_count == 2);
	inbox_message_clear(&message);
	finish();
}

Test(keeper_inbox, the_longest_text_and_one_that_is_too_long)
{
	static char text[100000];

	memset(text, 'x', sizeof(text));
	cr_assert_eq(send_fds(text, NOTIFY_BYTES_MAX, 0), 0);
	cr_assert_eq(send_fds(text, NOTIFY_BYTES_MAX + 1, 1), 0);
	cr_assert_eq(send_fds(text, sizeof(text), 1), 0);
	cr_assert_eq(inbox_receive(&inbox, &message), 1);
	cr_expect(!message.text_cut && message.bytes == NOTIFY_BYTES_MAX);
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(inbox_receive(&inbox, &message), 1);
		cr_expect(message.text_cut && message.fd_count == 1);
		inbox_message_clear(&message);
	}
	finish();
}

Test(keeper_inbox, as_many_descriptors_as_the_kernel_passes)
{
	cr_expect_eq(send_fds("x", 1, 300), -EINVAL, "the kernel passes more than we know of");
	cr_expect_eq(send_fds("x", 1, INBOX_FDS_MAX + 1), -EINVAL);
	cr_assert_eq(send_fds("x", 1, INBOX_FDS_MAX), 0);
	cr_assert_eq(inbox_receive(&inbox, &message), 1);
	cr_expect(message.fd_count == INBOX_FDS_MAX && !message.fds_cut);
	cr_expect_eq(message.sender, getpid());
	inbox_message_clear(&message);
	finish();
}

/* The kernel gives some of them, and a flag. */
Test(keeper_inbox, lost_descriptors_are_told_and_the_others_closed)
{
	struct rlimit files, few;

	getrlimit(RLIMIT_NOFILE, &files);
	few = files;
	few.rlim_cur = (rlim_t)sender + 5;
	cr_assert_eq(send_fds("FDSTORE=1", 9, 20), 0);
	setrlimit(RLIMIT_NOFILE, &few);
	cr_expect_eq(inbox_receive(&inbox, &message), 1);
	setrlimit(RLIMIT_NOFILE, &files);
	cr_expect(message.fds_cut);
	cr_expect_lt(message.fd_count, 20);
	cr_expect_eq(message.sender, getpid());
	inbox_message_clear(&message);
	finish();
}

Test(keeper_inbox, others_have_no_way_to_the_socket_and_nothing_is_left)
{
	struct stat st;
	char folder[sizeof(inbox.folder)];

	cr_assert_eq(stat(inbox.folder, &st), 0);
	cr_expect_eq(st.st_mode & 0777, 0700);
	cr_expect(fcntl(inbox.fd, F_GETFD) & FD_CLOEXEC);
	strcpy(folder, inbox.folder);
	finish();
	cr_expect(access(folder, F_OK) < 0);
	inbox_close(&inbox); /* twice does no harm */
}

Test(keeper_inbox, the_first_usual_place_that_takes_it, .init = cr_redirect_stderr)
{
	char place[] = "/tmp/gpuwm-inbox-XXXXXX";

	cr_assert(mkdtemp(place));
	setenv("XDG_RUNTIME_DIR", place, 1);
	cr_assert_eq(inbox_open(&inbox, NULL), 0);
	cr_expect(strncmp(inbox.path, place, strlen(place)) == 0, "%s", inbox.path);
	inbox_close(&inbox);
	rmdir(place);
	cr_assert_eq(inbox_open(&inbox, NULL), 0, "a runtime folder that is gone is passed over");
	cr_expect(strncmp(inbox.path, "/run/", 5) == 0 || strncmp(inbox.path, "/tmp/", 5) == 0);
	inbox_close(&inbox);
}

Test(keeper_inbox, a_place_that_is_none_is_refused, .init = cr_redirect_stderr)
{
	char long_name[120];

	memset(long_name, 'x', sizeof(long_name) - 1);
	long_name[0] = '/';
	long_name[sizeof(long_name) - 1] = 0;
	cr_expect_eq(inbox_open(&inbox, "/nonexistent"), -ENOENT);
	cr_expect_eq(inbox_open(&inbox, long_name), -ENAMETOOLONG);
	inbox_close(&inbox);
}

/* Of a keeper that was killed: the link in it names the process. */
Test(keeper_inbox, a_folder_that_a_killed_keeper_left_is_removed)
{
	char place[] = "/tmp/gpuwm-inbox-XXXXXX", left[64], link[80], maker[LEFTOVER_MAKER_BYTES];

	cr_assert(mkdtemp(place));
	leftover_maker_write(maker);
	snprintf(left, sizeof(left), "%s/gpuwm-keeper-lives", place);
	snprintf(link, sizeof(link), "%s/keeper", left);
	cr_assert_eq(mkdir(left, 0700) | symlink(maker, link), 0);
	cr_assert_eq(inbox_open(&inbox, place), 0);
	inbox_close(&inbox);
	cr_expect_eq(access(left, F_OK), 0, "its process lives");
	unlink(link);
	snprintf(strrchr(maker, '-'), 8, "-12345"); /* its pid belongs to another process by now */
	cr_assert_eq(symlink(maker, link), 0);
	cr_assert_eq(inbox_open(&inbox, place), 0);
	inbox_close(&inbox);
	cr_expect_lt(access(left, F_OK), 0);
	cr_expect_eq(rmdir(place), 0);
}

/* Who may write into the place could else have a keeper remove files elsewhere. */
Test(keeper_inbox, a_link_that_has_the_name_of_a_left_folder_is_not_followed)
{
	char place[] = "/tmp/gpuwm-inbox-XXXXXX", elsewhere[64], inner[80], link[64],
	     maker[LEFTOVER_MAKER_BYTES];
	struct stat st;

	cr_assert(mkdtemp(place));
	leftover_maker_write(maker);
	snprintf(strrchr(maker, '-'), 8, "-12345"); /* its pid belongs to another process by now */
	snprintf(elsewhere, sizeof(elsewhere), "%s/elsewhere", place);
	snprintf(inner, sizeof(inner), "%s/keeper", elsewhere);
	snprintf(link, sizeof(link), "%s/gpuwm-keeper-link", place);
	cr_assert_eq(mkdir(elsewhere, 0700) | symlink(maker, inner) | symlink(elsewhere, link), 0);
	cr_assert_eq(inbox_open(&inbox, place), 0);
	inbox_close(&inbox);
	cr_expect_eq(lstat(inner, &st), 0);
	cr_expect_eq(unlink(inner) | unlink(link) | rmdir(elsewhere) | rmdir(place), 0);
}

/* Of one that was killed before it made the link. One that is new may be about to make it. */
Test(keeper_inbox, a_folder_without_its_link_is_removed_when_it_is_old)
{
	char place[] = "/tmp/gpuwm-inbox-XXXXXX", left[64], other[64], file[80];
	const struct timespec old[2] = {{.tv_sec = 1000}, {.tv_sec = 1000}};

	cr_assert(mkdtemp(place));
	snprintf(left, sizeof(left), "%s/gpuwm-keeper-empty", place);
	snprintf(other, sizeof(other), "%s/gpuwm-keeper-other", place);
	snprintf(file, sizeof(file), "%s/file", other);
	cr_assert_eq(mkdir(left, 0700) | mkdir(other, 0700) | mkdir(file, 0700), 0);
	cr_assert_eq(utimensat(AT_FDCWD, other, old, 0), 0);
	cr_assert_eq(inbox_open(&inbox, place), 0);
	inbox_close(&inbox);
	cr_expect_eq(access(left, F_OK), 0, "it is new");
	cr_assert_eq(utimensat(AT_FDCWD, left, old, 0), 0);
	cr_assert_eq(inbox_open(&inbox, place), 0);
	inbox_close(&inbox);
	cr_expect_lt(access(left, F_OK), 0);
	cr_expect_eq(access(file, F_OK), 0, "what has something else in it is no keeper's");
	cr_expect_eq(rmdir(file) | rmdir(other) | rmdir(place), 0);
}
