/* Where the bytes of a copy are read: from the page cache, from the disk, and when by how many. */
#include "tests/support/loader/copied.h"
#include "tests/support/any/page_cache.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/resource.h>

TestSuite(copy_cache, .init = copied_setup, .fini = copied_teardown);

/* Rewrites m.safetensors with a header longer by `pad` and opens it; only its first `cached` bytes stay in the
 * page cache. */
static void make_half_cached(size_t pad, size_t cached)
{
	char *roots[] = {folder}, header[512];
	const char *path = in_folder("m.safetensors");

	source_close(&source);
	snprintf(header, sizeof(header),
		 "{\"a\":{\"dtype\":\"U8\",\"shape\":[8],\"data_offsets\":[0,8]},"
		 "\"b\":{\"dtype\":\"U8\",\"shape\":[100000],\"data_offsets\":[8,100008]},"
		 "\"c\":{\"dtype\":\"U8\",\"shape\":[13],\"data_offsets\":[100008,100021]}}%*s",
		 (int)pad, "");
	write_safetensors(path, header, BIG + 21);
	cr_assert_eq(source_open(path, &(struct load_choice){0}, &(struct roots){.paths = roots, .count = 1},
				 &source, &error),
		     0, "%s", error.message);
	if (!cache_drop(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size))
		cr_skip_test("the file system in %s cannot drop a file's pages", folder);
	if (cached > 0)
		cache_hold(source.files[0].fd, 0, cached);
	for (int k = 0; k < TENSORS; k++)
		memset(memory[0][k], 0, source.tensors[k].bytes);
}

#define TRIES 20

/* Copies, and how much was cached by what the kernel said: within these bounds, and the rest was read directly. One that
 * is held up while it asks may find what its asking made the kernel read, so this is tried again. */
static bool copies_warm(const struct copy_target *target, size_t chunk, uint64_t least, uint64_t most)
{
	const struct read_counts *counts = &report.counts;

	cr_assert_eq(copy_to(target, 1, (struct copy){.chunk = chunk}), 0, "%s", error.message);
	expect_copied(0);
	cr_assert_eq(counts->warm + counts->direct + counts->buffered, BIG + 21);
	if (report.note[0])
		return true;
	cr_assert_eq(counts->buffered, 0);
	return counts->warm >= least && counts->warm <= most;
}

static void skip_if_noted(void)
{
	if (report.note[0])
		cr_skip_test("the file system in %s takes no part in this: %s", folder, report.note);
}

/* Whatever a hole's place is to the words of a digest. */
Test(copy_cache, reads_what_is_cached_and_the_rest_directly)
{
	struct memory_device device = other(1000000);
	struct copy_target straight = {.device = &host, .addresses = (void *const *)memory[0]};
	struct copy_target ring = {.device = &device, .addresses = (void *const *)memory[0]};

	for (size_t pad = 0; pad < 8; pad++)
		for (int through_ring = 0; through_ring < 2; through_ring++) {
			int tries = 0;

			do {
				cr_assert_lt(tries++, TRIES, "%zu bytes of %d were cached",
					     (size_t)report.counts.warm, BIG + 21);
				make_half_cached(pad, 40960);
				/* What was asked for behind the hole is being read by then. */
			} while (!copies_warm(through_ring ? &ring : &straight, 32768, 1, 65536));
		}
	skip_if_noted();
}

/* Memory as a version on host has it: in two segments of which the first one is full. */
static struct copy_target make_segments(struct memory_segment segments[2], void *addresses[TENSORS])
{
	for (int i = 0; i < 2; i++) {
		cr_assert_eq(memory_host.create(&host, i ? 131072 : 4096, &segments[i], &error), 0);
		cr_assert_eq(memory_host.map(&host, &segments[i], MEMORY_WRITE, &error), 0);
	}
	addresses[0] = segments[0].address;
	addresses[1] = (char *)segments[1].address + 24;
	addresses[2] = (char *)segments[1].address + 24 + BIG;
	return (struct copy_target){
		.device = &host, .addresses = addresses, .segments = segments, .segment_count = 2};
}

/* By calls and through the mapping, with any number of readers; what is cached and what is not. */
Test(copy_cache, writes_into_the_segments_of_a_host)
{
	for (unsigned readers = 1; readers <= 8; readers++) {
		struct memory_segment segments[2];
		void *addresses[TENSORS];
		struct copy_target target = make_segments(segments, addresses);

		if (readers % 2)
			make_half_cached(readers, 40960);
		else
			cache_read(source.files[0].fd, 0, BIG);
		cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 32768, .readers = readers}), 0, "%s",
			     error.message);
		for (int k = 0; k < TENSORS; k++)
			memcpy(memory[0][k], addresses[k], source.tensors[k].bytes);
		expect_copied(0);
		for (int i = 0; i < 2; i++)
			memory_host.release(&host, &segments[i]);
	}
}

Test(copy_cache, tells_that_a_segment_cannot_be_written)
{
	struct memory_segment segments[2];
	void *addresses[TENSORS];
	struct copy_target target = make_segments(segments, addresses);

	if (host_pages_are_huge())
		cr_skip_test("segments of huge pages are not written by calls");
	cr_assert_eq(fcntl(segments[1].fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE), 0);
	for (int cached = 0; cached < 2; cached++) {
		make_half_cached(0, cached ? BIG : 0);
		cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 32768, .readers = 1}), -EPERM);
		cr_assert(strstr(error.message, "bytes of host memory failed"), "%s", error.message);
	}
	for (int i = 0; i < 2; i++)
		memory_host.release(&host, &segments[i]);
}

static unsigned cpus(void)
{
	cpu_set_t set;

	cr_assert_eq(sched_getaffinity(0, sizeof(set), &set), 0);
	return (unsigned)CPU_COUNT(&set);
}

Test(copy_cache, has_more_readers_than_processors_only_for_the_disk)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};

	if (cpus() >= COPY_READERS_MIN)
		cr_skip_test("as many processors as readers");
	make_half_cached(0, 0);
	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 1024}), 0, "%s", error.message);
	expect_copied(0);
	cr_expect_eq(report.readers, COPY_READERS_MIN);
	cache_read(source.files[0].fd, 0, BIG);
	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 1024}), 0, "%s", error.message);
	expect_copied(0);
	if (report.counts.direct + report.counts.buffered == 0)
		cr_expect_eq(report.readers, cpus());
}

/* Of the 13 pages that are asked for, some may not be there yet when they are to be dropped. */
Test(copy_cache, finds_a_file_as_cold_the_second_time)
{
	struct copy_target target = {.device = &host, .addresses = (void *const *)memory[0]};
	int tries = 0;

	do {
		cr_assert_lt(tries++, TRIES, "%zu bytes of %d were cached", (size_t)report.counts.warm,
			     BIG + 21);
		make_half_cached(0, 0);
	} while (!copies_warm(&target, 8192, 0, 0) || !copies_warm(&target, 8192, 0, 4 * CACHE_PAGE));
	skip_if_noted();
}

/* Rewrites m.safetensors as one tensor of `bytes`; every other `extent` of the file is in the page cache, the first
 * one is not. */
static void make_striped(size_t bytes, size_t extent)
{
	char *roots[] = {folder}, header[512];

	source_close(&source);
	snprintf(header, sizeof(header), "{\"a\":{\"dtype\":\"U8\",\"shape\":[%zu],\"data_offsets\":[0,%zu]}}",
		 bytes, bytes);
	write_safetensors(in_folder("m.safetensors"), header, bytes);
	cr_assert_eq(source_open(in_folder("m.safetensors"), &(struct load_choice){0},
				 &(struct roots){.paths = roots, .count = 1}, &source, &error),
		     0, "%s", error.message);
	if (!cache_drop(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size))
		cr_skip_test("the file system in %s cannot drop a file's pages", folder);
	for (size_t at = extent; at < bytes; at += 2 * extent)
		cache_read(source.files[0].fd, at, at + extent);
}

/* Whether most of what make_striped read is in the page cache still: the kernel takes back what it likes. */
static bool still_striped(size_t bytes, size_t extent)
{
	char *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, source.files[0].fd, 0);
	size_t pages = bytes / 4096, there = 0;
	unsigned char *resident = malloc(pages);

	cr_assert_eq(mincore(map, bytes, resident), 0);
	for (size_t i = 0; i < pages; i++)
		there += i * 4096 / extent % 2 == 1 && resident[i] & 1;
	free(resident);
	munmap(map, bytes);
	return there > pages / 2 * 99 / 100;
}

/* Holes that end inside a piece: what is cached behind them is not read from the disk again. */
Test(copy_cache, goes_on_with_the_cache_behind_a_hole, .timeout = 120)
{
	const size_t bytes = MIB(128);
	char *to = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *addresses[] = {to};
	struct memory_device device = other(1000000);
	struct copy_target straight = {.device = &host, .addresses = addresses};
	struct copy_target ring = {.device = &device, .addresses = addresses};
	struct digest digest;

	for (int i = 0; i < 2; i++) {
		make_striped(bytes, MIB(4));
		memset(to, 0, bytes);
		cr_assert_eq(copy_to(i ? &ring : &straight, 1, (struct copy){.chunk = MIB(8)}), 0, "%s",
			     error.message);
		if (report.note[0])
			cr_skip_test("the file system in %s takes no part in this: %s", folder, report.note);
		digest = digest_of(to, bytes);
		cr_assert(digest_equal(&digest, &digests[0]));
		if (still_striped(bytes, MIB(4)))
			cr_assert_leq(report.counts.direct, bytes / 4 * 3, "%zu MiB were read from the disk",
				      (size_t)(report.counts.direct >> 20));
	}
	munmap(to, bytes);
}

Test(copy_cache, names_the_end_of_a_file_truncated_anywhere)
{
	struct memory_device device = other(1000000);
	struct copy_target straight = {.device = &host, .addresses = (void *const *)memory[0]};
	struct copy_target ring = {.device = &device, .addresses = (void *const *)memory[0]};
	off_t begin = (off_t)source.tensors[0].offset, bytes = source.files[0].stat.st_size;
	char says[64];

	for (off_t end = bytes - 1; end >= 0; end -= end > bytes - 30 || end < begin + 30 ? 1 : 997) {
		cr_assert_eq(truncate(in_folder("m.safetensors"), end), 0);
		cr_assert_eq(copy_to(end % 2 ? &ring : &straight, 1, (struct copy){.chunk = 32768}), -EIO, "%d",
			     (int)end);
		snprintf(says, sizeof(says), "it ended at byte %d, it had %d", (int)end, (int)bytes);
		cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	}
}

Test(copy_cache, tells_that_host_memory_cannot_be_had)
{
	void *nothing = mmap(NULL, BIG, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	void *addresses[] = {memory[0][0], nothing, memory[0][2]};
	struct copy_target target = {.device = &host, .addresses = addresses};

	cr_assert_neq(nothing, MAP_FAILED);
	cr_assert_eq(copy_to(&target, 1, (struct copy){.chunk = 4096}), -ENOMEM);
	cr_assert(strstr(error.message, "no room in host memory"), "%s", error.message);
	munmap(nothing, BIG);
}

/* System calls of this process that read; with those of what asks for it. */
static unsigned long long reads_made(void)
{
	FILE *file = fopen("/proc/self/io", "re");
	unsigned long long reads = 0;

	cr_assert(file && fscanf(file, "rchar: %*u wchar: %*u syscr: %llu", &reads) == 1);
	fclose(file);
	return reads;
}

/* Of all its threads: what else the machine does takes none of it. */
static double cpu_seconds(void)
{
	struct rusage usage;

	cr_assert_eq(getrusage(RUSAGE_SELF, &usage), 0);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Each a read, or a lock, of its own would take minutes or seconds. */
Test(copy_cache, is_quick_with_many_small_tensors, .timeout = 120)
{
	enum { COUNT = 100000, BYTES = 77 };
	struct source_tensor *tensors = calloc(COUNT, sizeof(*tensors));
	void **addresses = calloc(COUNT, sizeof(*addresses));
	struct digest *sums = calloc(COUNT, sizeof(*sums));
	uint8_t *from = malloc(COUNT * BYTES), *to = calloc(COUNT, BYTES + 3);
	struct source many = {
		.files = source.files, .file_count = 1, .tensors = tensors, .tensor_count = COUNT};
	struct copy_target target = {.device = &host, .addresses = addresses};
	struct copy copy = {.source = &many, .targets = &target, .target_count = 1};
	unsigned long long reads;
	double seconds;

	for (size_t i = 0; i < COUNT; i++) {
		tensors[i] = (struct source_tensor){.offset = i * BYTES, .bytes = BYTES};
		addresses[i] = to + i * (BYTES + 3);
		memset(from + i * BYTES, (int)(i % 251), BYTES);
	}
	many.bytes = (uint64_t)COUNT * BYTES;
	source_give_back_leases(&source); /* the file is written anew */
	write_bytes(in_folder("m.safetensors"), from, COUNT * BYTES);
	cr_assert_eq(fstat(source.files[0].fd, &source.files[0].stat), 0);
	reads = reads_made();
	seconds = cpu_seconds();
	cr_assert_eq(copy_run(&copy, sums, &report, &error), 0, "%s", error.message);
	cr_expect_lt(reads_made() - reads, COUNT / 10);
	cr_expect_lt(cpu_seconds() - seconds, 2);
	for (size_t i = 0; i < COUNT; i++) {
		struct digest digest = digest_of(from + i * BYTES, BYTES);

		cr_assert_eq(memcmp(addresses[i], from + i * BYTES, BYTES), 0, "tensor %zu", i);
		cr_assert(digest_equal(&sums[i], &digest), "tensor %zu", i);
	}
	free(tensors), free(addresses), free(sums), free(from), free(to);
}

Test(copy_cache, reports_in_one_sentence)
{
	struct copy_report total = {0}, one = {.counts = {GIB(1), MIB(512), 0}, .seconds = 1, .readers = 8},
			   two = {.counts = {0, 0, MIB(512)}, .seconds = 1, .readers = 9, .note = "why"};
	char text[TEXT_BYTES_MAX + 1];

	copy_report_add(&total, &one);
	copy_report_add(&total, &two);
	copy_report_text(&total, text, sizeof(text));
	cr_expect_str_eq(text,
			 "read 2.0 GiB in 2.00 s (1.0 GiB/s, 9 readers): 1.0 GiB were cached, 512.0 MiB came "
			 "directly from the disk, 512.0 MiB through the page cache");
	cr_expect_str_eq(total.note, "why");
}
