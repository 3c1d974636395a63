/* Dry runs: what a load would take, and what is cached of its source. */
#include "tests/support/loader/daemon.h"
#include "tests/support/any/page_cache.h"

#include "../../loader/files/source.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/vfs.h>

TestSuite(dry_run, .timeout = 120);

/* The plan of loader_done, which is answered: the number of its devices. */
static uint32_t read_plan(struct fields *ret_plan, struct fields *ret_first)
{
	struct fields f;
	const msgpack_object *devices;
	uint32_t count = 0;

	expect("loader_done");
	fields_of(&f, message.body);
	cr_assert_not(fields_have(&f, "error"));
	fields_of(ret_plan, fields_map(&f, "plan"));
	devices = fields_array(ret_plan, "devices", &count);
	cr_assert(f.error.code == 0 && ret_plan->error.code == 0 && count > 0, "%s", f.error.message);
	fields_of(ret_first, &devices[0]);
	return count;
}

Test(dry_run, plans_and_creates_nothing)
{
	struct fields plan, device;
	char id[DEVICE_BYTES_MAX + 1];

	start();
	write_model();
	answer_empty();
	dry_run = true;
	send_load_to(folder, folder, (const char *const[]){"host", NULL});
	/* Nothing else is asked for: expect() would have met it first. */
	cr_expect_eq(read_plan(&plan, &device), 1);
	cr_expect_not(fields_have(&plan, "parts"), "the device gets one");
	cr_expect_eq(fields_u64(&plan, "tensors"), 2);
	cr_expect_eq(fields_u64(&plan, "files"), 1);
	cr_expect_eq(fields_u64(&plan, "bytes"), 21);
	cr_expect_eq(fields_u64(&plan, "cached"), 21, "it was just written");
	fields_text(&device, "device", id, sizeof(id));
	cr_expect_str_eq(id, "host");
	cr_expect_eq(fields_u64(&device, "bytes"), 4096);
	cr_expect_eq(fields_u64(&device, "segments"), 1);
	answer_empty();
	expect_end(0);
	finish();
}

Test(dry_run, adds_up_the_ranks_of_a_device_and_tells_each)
{
	const msgpack_object *parts;
	struct fields plan, device;
	uint32_t count = 0;

	start();
	for (int rank = 0; rank < 3; rank++)
		write_safetensors(in_folder("model-rank-%d-part-0.safetensors", rank),
				  "{\"a\":{\"dtype\":\"U8\",\"shape\":[5000],\"data_offsets\":[0,5000]}}",
				  5000);
	answer_empty();
	dry_run = true;
	send_load_to(folder, folder, (const char *const[]){"host", NULL});
	cr_expect_eq(read_plan(&plan, &device), 1);
	cr_expect_eq(fields_u64(&plan, "files"), 3);
	cr_expect_eq(fields_u64(&device, "bytes"), 3 * 8192);
	cr_expect_eq(fields_u64(&device, "segments"), 3);
	parts = fields_array(&plan, "parts", &count);
	cr_assert_eq(count, 3);
	for (uint32_t i = 0; i < count; i++)
		cr_expect_eq(parts[i].via.u64, 8192);
	answer_empty();
	expect_end(0);
	finish();
}

Test(dry_run, tells_what_is_wrong_with_the_source)
{
	start();
	answer_empty();
	dry_run = true;
	send_load_to(folder, folder, (const char *const[]){"host", NULL});
	expect_done("ENOENT", "has no safetensors files");
	finish();
}

/* ---- residency -------------------------------------------------------- */

#define DATA_BYTES ((size_t)MIB(7) + 1000)

static struct source source;
static struct error error;

static int go_on(uint64_t bytes, void *user_data)
{
	cr_assert_eq(bytes, 0);
	return *(int *)user_data;
}

static uint64_t residency(void)
{
	uint64_t bytes = 0;
	int answer = 0;

	cr_assert_eq(residency_of(&source, go_on, &answer, &bytes, &error), 0, "%s", error.message);
	return bytes;
}

/* A file that was just written; on disk too, and not only in memory. */
static void open_written(void)
{
	char header[80], *paths[] = {folder};
	const char *path;
	int fd;

	folder_make();
	path = in_folder("model.safetensors");
	snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		 DATA_BYTES, DATA_BYTES);
	write_safetensors(path, header, DATA_BYTES);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert(fd >= 0 && fsync(fd) == 0 && close(fd) == 0);
	cr_assert_eq(source_open(path, &(struct load_choice){0}, &(struct roots){.paths = paths, .count = 1},
				 &source, &error),
		     0, "%s", error.message);
}

static void close_written(void)
{
	source_close(&source);
	folder_remove();
}

Test(residency, is_all_of_a_file_that_was_written)
{
	open_written();
	cache_hold(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size);
	cr_assert_eq(residency(), DATA_BYTES);
	close_written();
}

static bool is_little_twice(void)
{
	bool is = true;

	cr_assert(cache_drop(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size));
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(posix_fadvise(source.files[0].fd, 0, 0, POSIX_FADV_NORMAL), 0);
		is &= residency() <= RESIDENCY_SAMPLE_BYTES;
	}
	return is;
}

/* Asked twice: the first answer must not be what makes the second. Tried again: who is held up while it asks may find
 * what its asking made the kernel read. */
Test(residency, is_little_of_a_file_that_was_dropped)
{
	struct statfs fs;
	int tries = 0;

	open_written();
	cr_assert_eq(fstatfs(source.files[0].fd, &fs), 0);
	if (fs.f_type == TMPFS_MAGIC)
		cr_skip_test("the files of a tmpfs can't be dropped");
	while (!is_little_twice())
		cr_assert_lt(++tries, 20, "more than %d of 7 MiB", (int)(RESIDENCY_SAMPLE_BYTES >> 20));
	close_written();
}

/* The header, and 4 KiB in the middle. A page of a hole that was read is in the cache too. */
Test(residency, is_nothing_of_a_hole)
{
	char header[80], *paths[] = {folder}, data[4096] = {1};
	const char *path;
	uint64_t size;
	int fd;

	folder_make();
	path = in_folder("model.safetensors");
	snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		 DATA_BYTES, DATA_BYTES);
	write_safetensors(path, header, 0);
	fd = open(path, O_RDWR | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	size = (uint64_t)lseek(fd, 0, SEEK_END) + DATA_BYTES;
	cr_assert_eq(ftruncate(fd, (off_t)size), 0);
	cr_assert_eq(pwrite(fd, data, sizeof(data), MIB(5)), sizeof(data));
	if (lseek(fd, MIB(1), SEEK_DATA) != MIB(5))
		cr_skip_test("this file system does not tell holes");
	/* A source takes no file that somebody may write. */
	close(fd);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	cache_hold(fd, 0, size);
	cr_assert_eq(source_open(path, &(struct load_choice){0}, &(struct roots){.paths = paths, .count = 1},
				 &source, &error),
		     0, "%s", error.message);
	/* A sample finds the header, or the data, once in a thousand times. */
	cr_expect_leq(residency(), 2 * RESIDENCY_SAMPLE_BYTES);
	close(fd);
	close_written();
}

Test(residency, ends_when_it_is_stopped)
{
	uint64_t bytes;
	int answer = -ECANCELED;

	open_written();
	cr_assert_eq(residency_of(&source, go_on, &answer, &bytes, &error), -ECANCELED);
	close_written();
}

static int stop_at_third(uint64_t bytes, void *user_data)
{
	cr_assert_eq(bytes, 0);
	return ++*(int *)user_data == 3 ? -ECANCELED : 0;
}

/* Not only between files: one may need half a million samples. */
Test(residency, ends_when_it_is_stopped_in_a_file)
{
	uint64_t bytes;
	int calls = 0;

	open_written();
	cr_assert_eq(residency_of(&source, stop_at_third, &calls, &bytes, &error), -ECANCELED);
	cr_assert_eq(calls, 3);
	close_written();
}

Test(residency, can_not_be_known_of_a_file_that_is_no_file)
{
	struct source_file file = {.path = (char *)"pipe", .stat = {.st_size = 1}};
	struct source_tensor tensor = {.bytes = 1};
	struct source of_pipe = {.files = &file, .file_count = 1, .tensors = &tensor, .tensor_count = 1};
	int ends[2], answer = 0;
	uint64_t bytes;

	cr_assert_eq(pipe2(ends, O_CLOEXEC), 0);
	file.fd = ends[0];
	cr_assert_eq(residency_of(&of_pipe, go_on, &answer, &bytes, &error), -EOPNOTSUPP);
	cr_assert(strstr(error.message, "what is cached of pipe can't be known"), "%s", error.message);
	close(ends[0]);
	close(ends[1]);
}
