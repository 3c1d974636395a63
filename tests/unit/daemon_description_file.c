/* Files of descriptions: written as a whole or not at all, and read only if they are whole and gpuwmd's own. */
#include "tests/support/daemon/server.h"
#include "daemon/restart/description_file.h"
#include "tests/support/any/own_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define BODY "the body"
#define FIRST_BYTES 300000 /* more than is copied in one go, and no multiple of 8 */
#define SECOND_BYTES 13

static char folder_path[64];
static int folder = -1;
static struct description_index indices[2];
static struct error why;

static int index_of(size_t bytes, char begin)
{
	int fd = memfd_create("index", MFD_CLOEXEC);

	for (size_t i = 0; i < bytes; i++) {
		char byte = (char)(begin + i / 7);

		cr_assert_eq(pwrite(fd, &byte, 1, (off_t)i), 1);
	}
	return fd;
}

static void open_folder(void)
{
	snprintf(folder_path, sizeof(folder_path), "%s/descriptions", own_folder());
	cr_assert_eq(mkdir(folder_path, 0700), 0);
	folder = open(folder_path, O_DIRECTORY | O_CLOEXEC);
	indices[0] = (struct description_index){index_of(FIRST_BYTES, 'a'), FIRST_BYTES};
	indices[1] = (struct description_index){index_of(SECOND_BYTES, 'q'), SECOND_BYTES};
}

static void close_folder(void)
{
	DIR *directory = opendir(folder_path);
	const struct dirent *entry;

	while ((entry = readdir(directory)))
		unlinkat(folder, entry->d_name, 0);
	closedir(directory);
	rmdir(folder_path);
	close(folder);
	close(indices[0].fd);
	close(indices[1].fd);
}

TestSuite(description_file, .init = open_folder, .fini = close_folder);

static int write_two(const char *name)
{
	return description_file_write(folder, name,
				      &(struct description_bytes){.kind = DESCRIPTION_VERSION,
								  .body = BODY,
								  .body_bytes = strlen(BODY),
								  .indices = indices,
								  .index_count = 2});
}

static void expect_same_bytes(int fd, const struct description_index *index)
{
	char *a = malloc(index->bytes), *b = malloc(index->bytes);

	cr_assert_eq(lseek(fd, 0, SEEK_END), (off_t)index->bytes);
	cr_assert_eq(pread(fd, a, index->bytes, 0), (ssize_t)index->bytes);
	cr_assert_eq(pread(index->fd, b, index->bytes, 0), (ssize_t)index->bytes);
	cr_expect_arr_eq(a, b, index->bytes);
	cr_expect_eq(fcntl(fd, F_GET_SEALS), F_SEAL_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL);
	free(a);
	free(b);
}

/* Reads all of it, and returns what the last step returns. */
static int read_two(const char *name, bool compare)
{
	struct description_reading reading;
	int fd, r = description_file_open(folder, name, DESCRIPTION_VERSION, &reading, &why);

	if (r < 0)
		return r;
	cr_expect(reading.body_bytes == strlen(BODY) && memcmp(reading.body, BODY, strlen(BODY)) == 0);
	for (int i = 0; r == 0 && i < 2; i++) {
		r = description_file_index(&reading, indices[i].bytes, &fd, &why);
		if (r == 0 && compare)
			expect_same_bytes(fd, &indices[i]);
		if (r == 0)
			close(fd);
	}
	if (r == 0)
		r = description_file_check(&reading, &why);
	description_file_close(&reading);
	return r;
}

Test(description_file, what_was_written_is_read)
{
	struct stat st;

	cr_assert_eq(write_two("v"), 0);
	cr_expect_eq(read_two("v", true), 0, "%s", why.message);
	cr_assert_eq(fstatat(folder, "v", &st, 0), 0);
	cr_expect_eq(st.st_mode & 0777, 0600);
	cr_expect_eq(faccessat(folder, "v" DESCRIPTION_NEW, F_OK, 0), -1);
}

Test(description_file, a_second_write_replaces_the_first_also_after_a_kill)
{
	close(openat(folder, "v" DESCRIPTION_NEW, O_CREAT | O_WRONLY, 0600));
	cr_assert_eq(write_two("v"), 0);
	cr_assert_eq(write_two("v"), 0);
	cr_expect_eq(read_two("v", true), 0);
}

Test(description_file, every_byte_counts)
{
	struct stat st;
	int fd;

	cr_assert_eq(write_two("v"), 0);
	cr_assert_eq(fstatat(folder, "v", &st, 0), 0);
	fd = openat(folder, "v", O_RDWR);
	for (off_t at = 0; at < st.st_size; at += at < 100 ? 1 : 4001) {
		char byte, other;

		cr_assert_eq(pread(fd, &byte, 1, at), 1);
		other = (char)(byte ^ 0x10);
		cr_assert_eq(pwrite(fd, &other, 1, at), 1);
		cr_expect_lt(read_two("v", false), 0, "byte %ld", (long)at);
		cr_assert_eq(pwrite(fd, &byte, 1, at), 1);
	}
	cr_expect_eq(read_two("v", false), 0);
	close(fd);
}

Test(description_file, a_torn_file_is_refused)
{
	static const off_t lengths[] = {0, 1, 63, 64, 70, 72, 200000};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		int fd;

		cr_assert_eq(write_two("v"), 0);
		fd = openat(folder, "v", O_RDWR);
		cr_assert_eq(ftruncate(fd, lengths[i]), 0);
		close(fd);
		cr_expect_eq(read_two("v", false), -EUCLEAN, "%ld bytes", (long)lengths[i]);
		cr_expect(strstr(why.message, "v has"), "%s", why.message);
	}
}

/* Sets a number of the header, and makes no new digest for it: it is told before the digest. */
static void expect_header(off_t at, uint32_t value, int code, const char *words)
{
	int fd;

	cr_assert_eq(write_two("v"), 0);
	fd = openat(folder, "v", O_RDWR);
	cr_assert_eq(pwrite(fd, &value, sizeof(value), at), (ssize_t)sizeof(value));
	close(fd);
	cr_expect_eq(read_two("v", false), code);
	cr_expect(strstr(why.message, words), "\"%s\" is not in \"%s\"", words, why.message);
}

Test(description_file, files_of_others_are_told_apart)
{
	struct description_reading reading;

	expect_header(0, 0x464c457f, -EUCLEAN, "v was not written by gpuwmd");
	expect_header(8, DESCRIPTION_FORMAT + 1, -EPROTONOSUPPORT, "of a newer gpuwmd");
	expect_header(8, 0, -EUCLEAN, "a header that gpuwmd does not write");
	expect_header(20, UINT32_MAX, -EUCLEAN, "a header that gpuwmd does not write");
	cr_assert_eq(write_two("v"), 0);
	cr_expect_eq(description_file_open(folder, "v", DESCRIPTION_NAMES, &reading, &why), -EUCLEAN);
	cr_expect_eq(description_file_open(folder, "none", DESCRIPTION_NAMES, &reading, &why), -ENOENT);
}

Test(description_file, what_is_no_file_is_refused_and_blocks_nobody)
{
	cr_assert_eq(mkfifoat(folder, "fifo", 0600), 0);
	cr_expect_eq(read_two("fifo", false), -EUCLEAN);
	cr_expect(strstr(why.message, "fifo is no file"), "%s", why.message);
	cr_assert_eq(write_two("v"), 0);
	cr_assert_eq(symlinkat("v", folder, "link"), 0);
	cr_expect_eq(read_two("link", false), -EUCLEAN);
	cr_expect(strstr(why.message, "link is a link"), "%s", why.message);
}

Test(description_file, a_file_of_another_user_is_refused)
{
	if (geteuid() != 0)
		cr_skip("only root can give a file away");
	cr_assert_eq(write_two("v"), 0);
	cr_assert_eq(fchownat(folder, "v", 12345, 0, 0), 0);
	cr_expect_eq(read_two("v", false), -EUCLEAN);
	cr_expect(strstr(why.message, "belongs to user 12345"), "%s", why.message);
}

Test(description_file, parts_that_want_other_indices_are_refused)
{
	struct description_reading reading;
	int fd;

	cr_assert_eq(write_two("v"), 0);
	cr_assert_eq(description_file_open(folder, "v", DESCRIPTION_VERSION, &reading, &why), 0);
	cr_expect_eq(description_file_index(&reading, 0, &fd, &why), -EUCLEAN);
	cr_expect_eq(description_file_index(&reading, FIRST_BYTES + 100, &fd, &why), -EUCLEAN);
	cr_expect_eq(description_file_index(&reading, UINT64_MAX, &fd, &why), -EUCLEAN);
	cr_assert_eq(description_file_index(&reading, FIRST_BYTES, &fd, &why), 0);
	close(fd);
	cr_expect_eq(description_file_check(&reading, &why), -EUCLEAN);
	cr_expect(strstr(why.message, "bytes of indices"), "%s", why.message);
	description_file_close(&reading);
}

Test(description_file, where_a_write_fails_the_old_file_stays)
{
	const struct rlimit limit = {1000, RLIM_INFINITY};

	cr_assert_eq(write_two("v"), 0);
	signal(SIGXFSZ, SIG_IGN);
	cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
	cr_expect_eq(write_two("v"), -EFBIG);
	cr_expect_eq(setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY}), 0);
	cr_expect_eq(faccessat(folder, "v" DESCRIPTION_NEW, F_OK, 0), -1);
	cr_expect_eq(read_two("v", true), 0);
	cr_expect_eq(description_file_write(-1, "v", &(struct description_bytes){.body = ""}), -EBADF);
}
