/* Readers on a real disk's file system, where pages can be dropped from the cache. */
#include "../../loader/copy/reader.h"

#include "tests/support/loader/files.h"
#include "tests/support/any/page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define FILE_BYTES (MIB(4) + 1234)
#define BUFFER_BYTES MIB(6)
#define PAGE READER_ALIGN

static struct source_file file;
static struct reader reader;
static struct read_counts counts;
static struct error error;
static uint8_t *content, *buffer; /* the buffer begins at a page */

static void make_file(const char *path)
{
	content = malloc(FILE_BYTES);
	for (size_t i = 0; i < FILE_BYTES; i++)
		content[i] = (uint8_t)(i * 2654435761u >> 13);
	write_bytes(path, content, FILE_BYTES);
}

static void open_reader(const char *path)
{
	file = (struct source_file){.path = (char *)path, .fd = open(path, O_RDONLY | O_CLOEXEC)};
	cr_assert(file.fd >= 0 && fstat(file.fd, &file.stat) == 0);
	reader_open(&file, &reader);
}

static void setup(void)
{
	if (!getenv("TMPDIR"))
		setenv("TMPDIR", "/var/tmp", 1); /* /tmp may be a tmpfs */
	folder_make();
	buffer = mmap(NULL, BUFFER_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	cr_assert_neq(buffer, MAP_FAILED);
	make_file(in_folder("f"));
	open_reader(in_folder("f"));
}

static void teardown(void)
{
	reader_close(&reader);
	close(file.fd);
	munmap(buffer, BUFFER_BYTES);
	free(content);
	folder_remove();
}

TestSuite(reader, .init = setup, .fini = teardown, .timeout = 120);

static ssize_t cached(uint64_t offset, size_t bytes)
{
	return reader_cached(&reader, &(struct iovec){buffer + offset % PAGE, bytes}, 1, offset);
}

/* Asking makes the kernel read, and who is held up meanwhile may find what that brought. So what is not held is
 * dropped, and asked for again; pages that are just being read count as missing. */
#define ASKED_AGAIN(condition)                                                                                 \
	({                                                                                                     \
		bool holds_;                                                                                   \
		for (int i_ = 0; !(holds_ = (condition)) && i_ < 100; i_++) {                                  \
			posix_fadvise(file.fd, 0, 0, POSIX_FADV_DONTNEED);                                     \
			usleep(1000);                                                                          \
		}                                                                                              \
		holds_;                                                                                        \
	})
#define CACHED_IS(offset, bytes, expected)                                                                     \
	cr_assert(ASKED_AGAIN(cached(offset, bytes) == (ssize_t)(expected)), "not %zu", (size_t)(expected))

/* Until so many asks in a row were in vain. */
static void make_cold(void)
{
	int vain = 0;

	for (int i = 0; vain < READER_COLD; i++) {
		cr_assert_lt(i, 100 * READER_COLD);
		vain = cached(MIB(3), PAGE) == 0 ? vain + 1 : 0;
		cache_wait(file.fd, MIB(3));
		cr_assert(cache_drop(file.fd, MIB(3), MIB(3) + PAGE));
	}
}

static bool is_missing(uint64_t offset)
{
	char byte;

	return preadv2(file.fd, &(struct iovec){&byte, 1}, 1, (off_t)offset, RWF_NOWAIT) < 0 && errno == EAGAIN;
}

/* Nothing of the file is cached but [0, end). */
static void cache_only(uint64_t end)
{
	if (!cache_drop(file.fd, 0, FILE_BYTES)) {
		teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("the file system in %s cannot drop a file's pages", folder);
	}
	if (end > 0)
		cache_hold(file.fd, 0, end);
	if (!ASKED_AGAIN(is_missing(MIB(3)))) {
		teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("the file system in %s does not say what is cached", folder);
	}
	/* Asking began to read it. */
	cache_wait(file.fd, MIB(3));
	cr_assert(cache_drop(file.fd, MIB(3), MIB(3) + PAGE));
}

static void fetch(uint64_t offset, size_t bytes)
{
	memset(&counts, 0, sizeof(counts));
	memset(&error, 0, sizeof(error));
	cr_assert_eq(reader_fetch(&reader, buffer + offset % PAGE, offset, bytes, &counts, &error), 0, "%s",
		     error.message);
	cr_assert_eq(memcmp(buffer + offset % PAGE, content + offset, bytes), 0, "%zu bytes at %zu", bytes,
		     (size_t)offset);
	cr_assert_eq(counts.direct + counts.buffered, bytes);
	cr_assert_eq(counts.warm, 0);
}

Test(reader, takes_what_is_cached_from_there)
{
	cache_only(0);
	cache_hold(file.fd, 0, FILE_BYTES);
	memset(buffer, 0, BUFFER_BYTES);
	cr_assert_eq(cached(5000, FILE_BYTES - 5000), FILE_BYTES - 5000);
	cr_assert_eq(memcmp(buffer + 5000 % PAGE, content + 5000, FILE_BYTES - 5000), 0);
	cr_assert_str_empty(reader_note(&reader));
}

/* Of a file that seems to lie on the disk only some ranges are asked for; one that is found brings all back. */
Test(reader, asks_a_cold_file_less_often)
{
	int asked = 0;

	cache_only(PAGE);
	make_cold();
	while (cached(0, PAGE) == 0)
		cr_assert_leq(++asked, READER_ASK_EVERY);
	cr_assert_gt(asked, 1);
	cr_assert_eq(cached(0, PAGE), PAGE);
}

Test(reader, scatters_what_is_cached)
{
	uint8_t *places[3] = {buffer, buffer + 10000, buffer + 20000};
	struct iovec iov[] = {{places[0], 7}, {places[1], 100}, {places[2], 5000}};

	cache_only(MIB(1));
	cr_assert_eq(reader_cached(&reader, iov, 3, 333), 5107);
	cr_assert_eq(memcmp(places[0], content + 333, 7), 0);
	cr_assert_eq(memcmp(places[1], content + 340, 100), 0);
	cr_assert_eq(memcmp(places[2], content + 440, 5000), 0);
}

Test(reader, stops_at_a_hole_in_the_cache)
{
	cache_only(MIB(1));
	CACHED_IS(4096, MIB(2), MIB(1) - 4096);
	cr_assert_eq(memcmp(buffer, content + 4096, MIB(1) - 4096), 0);
	CACHED_IS(MIB(3), PAGE, 0);
}

Test(reader, fetches_the_rest_directly)
{
	cache_only(0);
	fetch(MIB(1), MIB(2));
	cr_assert_eq(counts.direct, MIB(2), "%s", reader_note(&reader));
	cr_assert(reader_is_direct(&reader));
	cr_assert_str_empty(reader_note(&reader));
}

Test(reader, fetches_any_range)
{
	static const uint64_t offsets[] = {
		0, 1, 511, 4095, 4096, 4097, 10000, FILE_BYTES - 5000, FILE_BYTES - 1};
	static const size_t sizes[] = {1, 7, 4095, 4096, 4097, 100000, FILE_BYTES};

	cache_only(0);
	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++)
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			uint64_t left = FILE_BYTES - offsets[i];

			fetch(offsets[i], sizes[k] < left ? sizes[k] : left);
			cr_assert_eq(counts.buffered, 0, "%s", reader_note(&reader));
		}
}

Test(reader, writes_only_the_pages_around_the_range)
{
	cache_only(0);
	memset(buffer, 0xA5, BUFFER_BYTES);
	cr_assert_eq(reader_fetch(&reader, buffer + PAGE + 100, 100, PAGE, &counts, &error), 0);
	for (size_t i = 0; i < PAGE; i++)
		cr_assert(buffer[i] == 0xA5 && buffer[3 * PAGE + i] == 0xA5, "byte %zu", i);
}

/* Reads the whole cold file, and says how many pages of it are cached then. */
static size_t left_by_fetches(void)
{
	cache_only(0);
	for (uint64_t at = 0; at < FILE_BYTES; at += MIB(1)) {
		size_t bytes = FILE_BYTES - at < MIB(1) ? FILE_BYTES - at : MIB(1);

		CACHED_IS(at, bytes, 0);
		cache_wait(file.fd, at);
		fetch(at, bytes);
	}
	return cache_pages(file.fd, 0, FILE_BYTES);
}

/* Else each load of a cold file would leave the first page of every range, and the next one would take them for cached
 * ranges. On a busy disk the kernel may still be reading such a page as it is dropped, hence the tries. */
Test(reader, leaves_the_cache_as_it_was)
{
	cr_assert(ASKED_AGAIN(left_by_fetches() == 0));
}

static size_t left_behind; /* pages that asking brought in */

static size_t hole(uint64_t offset, size_t bytes)
{
	struct reader_hole hole;

	reader_hole(&reader, offset, bytes, &hole);
	fetch(offset, hole.bytes);
	for (unsigned i = 0; i < hole.ask_count; i++)
		cache_wait(file.fd, hole.asked[i]);
	reader_hole_forget(&reader, &hole);
	for (unsigned i = 0; i < hole.ask_count; i++) {
		left_behind += cache_pages(file.fd, hole.asked[i], hole.asked[i] + PAGE);
		cr_assert(cache_drop(file.fd, hole.asked[i], hole.asked[i] + PAGE));
	}
	return hole.bytes;
}

#define HOLE_IS(offset, bytes, expected)                                                                       \
	cr_assert(ASKED_AGAIN(hole(offset, bytes) == (expected)), "not %zu", (size_t)(expected))

Test(reader, finds_where_holes_end)
{
	size_t bytes;

	cache_only(0);
	HOLE_IS(0, MIB(4), MIB(4));
	cache_hold(file.fd, MIB(2), MIB(3));
	HOLE_IS(0, MIB(4), MIB(2));
	cr_assert(ASKED_AGAIN((bytes = hole(5000, MIB(4) - 5000)) > MIB(2) - 5000 - PAGE));
	cr_assert_leq(bytes, MIB(2) + READER_STEP - 5000);
	HOLE_IS(0, MIB(1) + 12345, MIB(1) + 12345);
	HOLE_IS(0, 100, 100);
	HOLE_IS(MIB(1) + KIB(512), MIB(2), KIB(512));
	cr_assert_leq(left_behind, 5, "the kernel may just be busy with some");
}

Test(reader, asks_for_no_holes_of_a_cold_file)
{
	cache_only(0);
	cache_hold(file.fd, MIB(2), MIB(3));
	make_cold();
	HOLE_IS(0, MIB(4), MIB(4));
}

Test(reader, asks_for_no_holes_where_it_cannot)
{
	struct reader_hole all;

	reader_close(&reader);
	close(file.fd);
	open_reader("/proc/self/mountinfo");
	cr_assert_eq(cached(0, 10), 0);
	reader_hole(&reader, 0, MIB(8), &all);
	cr_assert_eq(all.bytes, MIB(8));
	cr_assert_eq(all.ask_count, 0);
}

/* mincore would say that all is cached, cachestat EPERM. */
Test(reader, sees_holes_in_files_of_others)
{
	int status;
	pid_t child;

	cr_assert(chmod(folder, 0755) == 0 && chmod(in_folder("f"), 0644) == 0);
	cache_only(MIB(1));
	if (geteuid() != 0) {
		teardown(); /* Criterion calls no fini after a skip */
		cr_skip_test("only root can become another user");
	}
	child = fork();
	if (child == 0) {
		struct read_counts seen = {0};
		bool well;

		if (setgid(65534) < 0 || setuid(65534) < 0)
			_exit(2);
		open_reader(in_folder("f"));
		well = ASKED_AGAIN(cached(0, MIB(2)) == (ssize_t)MIB(1)) &&
		       ASKED_AGAIN(cached(MIB(2), MIB(1)) == 0) &&
		       reader_fetch(&reader, buffer, MIB(2), MIB(1), &seen, &error) == 0 &&
		       seen.direct == MIB(1) && memcmp(buffer, content + MIB(2), MIB(1)) == 0;
		_exit(well ? 0 : 1);
	}
	cr_assert(waitpid(child, &status, 0) == child);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%x", (unsigned)status);
}

static void expect_buffered(const char *why)
{
	fetch(MIB(1), MIB(1) + 5);
	cr_assert_eq(counts.buffered, MIB(1) + 5);
	cr_assert_not(reader_is_direct(&reader));
	cr_assert(strstr(reader_note(&reader), why), "\"%s\" does not say \"%s\"", reader_note(&reader), why);
	cr_assert(strstr(reader_note(&reader), "/f "), "%s", reader_note(&reader));
}

Test(reader, says_that_it_may_not_open_directly)
{
	struct rlimit limit = {0, 0};

	cache_only(0);
	cr_assert_eq(getrlimit(RLIMIT_NOFILE, &limit), 0);
	limit.rlim_cur = (rlim_t)file.fd + 1;
	cr_assert_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
	expect_buffered("opening it with O_DIRECT: Too many open files");
}

Test(reader, reads_no_other_file_directly)
{
	cache_only(0);
	file.stat.st_ino++;
	expect_buffered("opening it with O_DIRECT: Stale file handle");
}

/* As on file systems that take the flag and then refuse to read: here for an odd address. */
Test(reader, says_that_reading_directly_is_refused)
{
	cache_only(0);
	cr_assert_eq(reader_fetch(&reader, buffer + 1, 0, MIB(1), &counts, &error), 0, "%s", error.message);
	cr_assert_eq(memcmp(buffer + 1, content, MIB(1)), 0);
	expect_buffered("reading it with O_DIRECT: Invalid argument");
}

Test(reader, says_that_the_file_system_does_not_tell)
{
	reader_close(&reader);
	close(file.fd);
	open_reader("/proc/self/mountinfo");
	cr_assert_eq(cached(0, 10), 0);
	cr_assert_eq(reader_fetch(&reader, buffer, 0, 10, &counts, &error), 0, "%s", error.message);
	cr_assert_eq(counts.buffered, 10);
	cr_assert(strstr(reader_note(&reader), "(RWF_NOWAIT): Operation not supported"), "%s",
		  reader_note(&reader));
}

Test(reader, reads_files_in_memory)
{
	char path[] = "/dev/shm/gpuwm-test-XXXXXX";
	int fd = mkstemp(path);

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, content, FILE_BYTES), (ssize_t)FILE_BYTES);
	close(fd);
	reader_close(&reader);
	close(file.fd);
	open_reader(path);
	unlink(path);
	if (cached(100, MIB(1)) == 0)
		fetch(100, MIB(1));
	cr_assert_eq(memcmp(buffer + 100, content + 100, MIB(1)), 0);
	fetch(FILE_BYTES - 10000, 10000);
}

static void expect_truncated(uint64_t at, uint64_t offset, size_t bytes)
{
	char says[64];

	memset(&error, 0, sizeof(error));
	cr_assert_eq(reader_fetch(&reader, buffer + offset % PAGE, offset, bytes, &counts, &error), -EIO);
	snprintf(says, sizeof(says), "ended at byte %zu, it had %zu", (size_t)at, (size_t)FILE_BYTES);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

Test(reader, names_where_a_truncated_file_ends)
{
	static const uint64_t ends[] = {MIB(2) + 1, MIB(2), MIB(1) + 4097, MIB(1) + 4096, MIB(1) + 1, MIB(1),
					5,          0};

	cache_only(0);
	for (size_t i = 0; i < sizeof(ends) / sizeof(ends[0]); i++) {
		cr_assert_eq(truncate(in_folder("f"), (off_t)ends[i]), 0);
		cr_assert_leq(cached(MIB(1), MIB(2)), (ssize_t)MIB(1));
		expect_truncated(ends[i], MIB(1), MIB(2));
		expect_truncated(ends[i], MIB(1) + 3, MIB(2));
	}
}

Test(reader, tells_memory_that_cannot_be_written)
{
	cache_only(MIB(1));
	cr_assert_eq(mprotect(buffer, BUFFER_BYTES, PROT_NONE), 0);
	cr_assert_eq(cached(0, PAGE), -EFAULT);
}

Test(reader, closes_what_it_opened)
{
	int before = fd_count();

	cache_only(0);
	fetch(0, PAGE);
	cr_assert_eq(fd_count(), before + 1);
	reader_close(&reader);
	cr_assert_eq(fd_count(), before);
	reader_open(&file, &reader);
}
