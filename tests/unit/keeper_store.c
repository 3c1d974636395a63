#include "keeper/store.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/any/open_files.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX 4

static struct store store;
static int fds_before;

static void setup(void)
{
	open_files_raise();
	fds_before = fd_count();
	cr_assert_eq(store_init(&store, MAX), 0);
}

static void finish(void)
{
	store_clear(&store);
	cr_assert_eq(fd_count(), fds_before, "descriptors are left open");
}

TestSuite(keeper_store, .init = setup);

static int memfd(void)
{
	int fd = memfd_create("test", MFD_CLOEXEC);

	cr_assert_geq(fd, 0);
	return fd;
}

static bool names_are(const char *expected)
{
	char names[2048] = "";

	for (size_t i = 0; i < store.count; i++) {
		strcat(names, store.entries[i].name);
		strcat(names, " ");
	}
	return strcmp(names, expected) == 0;
}

Test(keeper_store, keeps_the_order_and_takes_the_descriptors)
{
	struct stat sent, kept;
	int fd = memfd();

	fstat(fd, &sent);
	cr_expect_eq(store_add(&store, fd, "b"), 1);
	cr_expect_eq(store_add(&store, memfd(), "a"), 1);
	cr_expect_eq(store_add(&store, memfd(), "b"), 1);
	cr_expect(names_are("b a b "));
	cr_expect_eq(fd_count(), fds_before + 3);
	fstat(store.entries[0].fd, &kept);
	cr_expect_eq(sent.st_ino, kept.st_ino);
	for (size_t i = 0; i < store.count; i++) {
		cr_expect_geq(store.entries[i].fd, STORE_FD_FIRST + MAX,
			      "it could clash with a place of a child");
		cr_expect(fcntl(store.entries[i].fd, F_GETFD) & FD_CLOEXEC);
	}
	finish();
}

Test(keeper_store, removes_every_descriptor_of_a_name)
{
	store_add(&store, memfd(), "b");
	store_add(&store, memfd(), "a");
	store_add(&store, memfd(), "b");
	store_add(&store, memfd(), "bb");
	cr_expect_eq(store_remove(&store, "x"), 0);
	cr_expect_eq(store_remove(&store, "b"), 2);
	cr_expect(names_are("a bb "));
	cr_expect_eq(fd_count(), fds_before + 2);
	cr_expect_eq(store.name_bytes, 5);
	cr_expect_eq(store_remove(&store, "b"), 0);
	store_add(&store, memfd(), "b");
	cr_expect(names_are("a bb b "));
	finish();
}

Test(keeper_store, the_same_open_file_is_kept_once)
{
	int fd = memfd(), other = open("/dev/null", O_RDWR | O_CLOEXEC);

	cr_expect_eq(store_add(&store, dup(fd), "a"), 1);
	cr_expect_eq(store_add(&store, dup(fd), "a"), 0);
	cr_expect_eq(store_add(&store, fd, "b"), -EEXIST, "a name that is not there would be said to be");
	/* Two opens of a device are two files: GPU memory is such a one. */
	cr_expect_eq(store_add(&store, other, "c"), 1);
	cr_expect_eq(store_add(&store, open("/dev/null", O_RDWR | O_CLOEXEC), "c"), 1);
	cr_expect(names_are("a c c "));
	finish();
}

/* The order of open files in the kernel is any: with many, each place of the search is met. */
Test(keeper_store, each_of_many_files_is_found_again_whatever_was_removed)
{
	int fds[300];
	char name[16];

	store_clear(&store);
	cr_assert_eq(store_init(&store, 300), 0);
	for (int i = 0; i < 300; i++) {
		fds[i] = memfd();
		snprintf(name, sizeof(name), "%d", i % 30);
		cr_assert_eq(store_add(&store, dup(fds[i]), name), 1);
	}
	for (int removed = 0; removed < 30; removed += 3) {
		for (int i = 0; i < 300; i++) {
			if (i % 30 % 3 != 0 || i % 30 >= removed)
				cr_assert_eq(store_add(&store, dup(fds[i]), "x"), -EEXIST, "%d is not found",
					     i);
		}
		snprintf(name, sizeof(name), "%d", removed);
		cr_assert_eq(store_remove(&store, name), 10);
	}
	for (int i = 0; i < 300; i++)
		cr_assert_eq(store_add(&store, fds[i], "x"), i % 30 % 3 == 0 ? 1 : -EEXIST);
	cr_expect_eq(store.count, 300);
	finish();
}

Test(keeper_store, a_full_one_closes_what_it_does_not_keep)
{
	for (int i = 0; i < MAX; i++)
		cr_expect_eq(store_add(&store, memfd(), "a"), 1);
	cr_expect_eq(store_add(&store, memfd(), "b"), -ENOSPC);
	cr_expect_eq(fd_count(), fds_before + MAX);
	cr_expect_eq(store_add(&store, dup(store.entries[0].fd), "a"), 0, "what is there needs no room");
	store_remove(&store, "a");
	cr_expect_eq(store_add(&store, memfd(), "b"), 1);
	finish();
}

Test(keeper_store, a_store_for_none)
{
	store_clear(&store);
	cr_assert_eq(store_init(&store, 0), 0);
	cr_expect_eq(store_add(&store, memfd(), "a"), -ENOSPC);
	cr_expect_eq(store_remove(&store, "a"), 0);
	finish();
}

Test(keeper_store, names_fit_one_environment_variable)
{
	char name[256];
	size_t kept = 0;
	int r;

	store_clear(&store);
	cr_assert_eq(store_init(&store, 1000), 0);
	memset(name, 'x', 255);
	name[255] = 0;
	while ((r = store_add(&store, memfd(), name)) == 1)
		kept++;
	cr_expect_eq(r, -E2BIG);
	cr_expect_eq(kept, 511); /* 512 of 256 bytes are 128 KiB, without LISTEN_FDNAMES= */
	cr_expect_eq(fd_count(), fds_before + 511);
	finish();
}

Test(keeper_store, without_open_files_left_nothing_is_kept)
{
	struct rlimit files, few;
	int fd = memfd();

	getrlimit(RLIMIT_NOFILE, &files);
	few = files;
	few.rlim_cur = (rlim_t)fd + 1;
	setrlimit(RLIMIT_NOFILE, &few);
	cr_expect_eq(store_add(&store, fd, "a"), -EMFILE);
	setrlimit(RLIMIT_NOFILE, &files);
	cr_expect_eq(fd_count(), fds_before);
	finish();
}

Test(keeper_store, its_memory_is_there_from_the_start)
{
	int fd = memfd(), r;

	store_clear(&store);
	for (unsigned n = 1; fail_alloc_arm(n), r = store_init(&store, MAX), fail_alloc_disarm(); n++)
		cr_expect(r == -ENOMEM && n <= 2);
	store_clear(&store);
	cr_assert_eq(store_init(&store, MAX), 0);
	fail_alloc_arm(1);
	cr_expect_eq(store_add(&store, fd, "a"), 1);
	cr_expect_not(fail_alloc_disarm(), "to keep a descriptor takes memory");
	finish();
}
