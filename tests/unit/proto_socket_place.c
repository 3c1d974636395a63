/* Whether gpuwmd can listen at a path, and whether others could in its place. */
#include "proto/socket_place.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NOBODY 65534

static char folder[] = "/tmp/gpuwm-place-XXXXXX";
static char path[64];
static struct error error;

static void setup(void)
{
	cr_assert(mkdtemp(folder));
	snprintf(path, sizeof(path), "%s/in/s", folder);
}

static void teardown(void)
{
	char inside[64];

	snprintf(inside, sizeof(inside), "%s/in", folder);
	unlink(path);
	unlink(inside);
	rmdir(inside);
	cr_expect_eq(rmdir(folder), 0);
}

TestSuite(socket_place, .init = setup, .fini = teardown);

static void inside_make(mode_t mode)
{
	char inside[64];

	snprintf(inside, sizeof(inside), "%s/in", folder);
	cr_assert(mkdir(inside, mode) == 0 && chmod(inside, mode) == 0);
}

static void expect(int code, const char *says, const char *remedy)
{
	error = (struct error){0};
	cr_expect_eq(socket_place_check(path, geteuid(), &error), code, "%s", error.message);
	cr_expect(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_expect(strstr(error.detail, remedy), "\"%s\" does not say \"%s\"", error.detail, remedy);
}

Test(socket_place, may_be_new_or_hold_a_socket)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	expect(0, "", ""); /* gpuwmd makes the folder */
	inside_make(0755);
	expect(0, "", "");
	cr_expect_eq(socket_file_check(path, &error), 0);
	strcpy(address.sun_path, path);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	expect(0, "", "");
	cr_expect_eq(socket_file_check(path, &error), 1);
	close(sock);
}

Test(socket_place, that_is_too_long)
{
	char text[SOCKET_PATH_BYTES_MAX + 2];

	memset(text, 'x', sizeof(text) - 1);
	text[sizeof(text) - 1] = '\0';
	cr_expect_eq(socket_place_check(text, geteuid(), &error), -ENAMETOOLONG);
	cr_expect(strstr(error.message, "has 108 bytes, and at most 107 are possible"), "%s", error.message);
	text[sizeof(text) - 2] = '\0';
	cr_expect_eq(socket_path_check(text, &error), 0);
}

Test(socket_place, without_a_folder)
{
	snprintf(path, sizeof(path), "%s/no/in/s", folder);
	expect(-ENOENT, "/no/in is not there, nor is the one above it", "gpuwmctl start");
}

Test(socket_place, whose_folder_is_a_file)
{
	char inside[64];

	snprintf(inside, sizeof(inside), "%s/in", folder);
	close(open(inside, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	expect(-ENOTDIR, "is no folder", "remove it");
	strcat(path, "/s"); /* the folder of it is below a file */
	expect(-ENOTDIR, "can't be used: Not a directory", "another --socket");
	snprintf(path, sizeof(path), "%s/in/s", folder);
}

Test(socket_place, where_something_else_lies)
{
	inside_make(0755);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	expect(-EEXIST, "/in/s exists and is no socket", "remove it");
}

Test(socket_place, into_which_others_can_write)
{
	char inside[64];

	snprintf(inside, sizeof(inside), "%s/in", folder);
	inside_make(0757);
	expect(-EPERM, "can be written to by every user", "chmod go-w");
	chmod(inside, 0775);
	expect(-EPERM, "can be written to by its group", "chmod go-w");
	chmod(inside, 01777);
	expect(0, "", "");
}

Test(socket_place, of_another_users_folder)
{
	char inside[64];

	if (geteuid() != 0) {
		teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can give folders away");
	}
	snprintf(inside, sizeof(inside), "%s/in", folder);
	inside_make(0755);
	cr_assert_eq(chown(inside, NOBODY, (gid_t)-1), 0);
	expect(-EPERM, "belongs to user 65534", "chown 0");
	cr_expect_eq(socket_place_check(path, NOBODY, &error), 0, "it is that user's own");
}

Test(socket_place, into_which_gpuwmd_can_not_write)
{
	if (geteuid() != 0) {
		teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can be somebody else");
	}
	cr_assert_eq(chmod(folder, 0755), 0);
	cr_assert_eq(seteuid(NOBODY), 0);
	expect(-EACCES, "gpuwmd can't write into the folder /tmp/gpuwm-place-", "uid 65534 must");
	cr_assert_eq(seteuid(0), 0);
	inside_make(0755);
	cr_assert_eq(seteuid(NOBODY), 0);
	expect(-EACCES, "/in: Permission denied", "uid 65534 must");
	cr_expect_eq(socket_place_check(path, 0, &error), 0, "another user's rights are not judged");
	cr_assert_eq(seteuid(0), 0);
}

static int listen_at(const char *at)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", at);
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	return sock;
}

/* Whoever may write into the folder puts a link in the place of the socket that gpuwmd has just made. */
Test(socket_place, where_a_link_lies_changes_no_other_file)
{
	char victim[64];
	struct stat st;
	int sock;

	inside_make(0700);
	snprintf(victim, sizeof(victim), "%s/victim", folder);
	close(open(victim, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	cr_assert_eq(symlink(victim, path), 0);
	cr_expect_eq(socket_file_set_access(path, (gid_t)-1, 0666), -ESTALE);
	cr_expect(stat(victim, &st) == 0 && (st.st_mode & 0777) == 0600);
	unlink(victim);
	unlink(path);
	sock = listen_at(path);
	cr_expect_eq(socket_file_set_access(path, getegid(), 0620), 0);
	cr_expect(lstat(path, &st) == 0 && (st.st_mode & 0777) == 0620);
	close(sock);
}

Test(socket_place, where_a_socket_of_another_user_lies_is_not_cleared)
{
	int sock;

	if (geteuid() != 0)
		cr_skip("only root can make files of another user");
	inside_make(0700);
	sock = listen_at(path);
	close(sock);
	cr_assert_eq(lchown(path, NOBODY, (gid_t)-1), 0);
	cr_expect_eq(socket_file_remove_stale(path, &error), -EPERM);
	cr_expect(strstr(error.message, "belongs to user 65534"), "%s", error.message);
	cr_assert_eq(lchown(path, 0, (gid_t)-1), 0);
	cr_expect_eq(socket_file_remove_stale(path, &error), 0);
	cr_expect_eq(socket_file_remove_stale(path, &error), 0, "it is gone");
}
