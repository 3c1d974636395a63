/* A source that is cut while it is copied: every byte of every rank, and every digest, as a reference that
 * knows only shapes says. */
#include "loader/copy/copy.h"
#include "loader/devices/lanes.h"
#include "loader/copy/reader.h"
#include "proto/index/dtype.h"
#include "tests/support/any/page_cache.h"
#include "tests/support/loader/opened.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>

#define RANKS_MAX 8

static char header[131072];
static uint64_t data_bytes;
static char *file; /* its bytes behind the header */
static struct cut cut;
static struct digest *digests;
static void **addresses[RANKS_MAX];
static struct copy_report report;

static void setup(void)
{
	if (!getenv("TMPDIR"))
		setenv("TMPDIR", "/var/tmp", 1); /* /tmp may be a tmpfs, which is always cached */
	source_setup();
}

TestSuite(copy_cut, .init = setup, .fini = source_teardown, .timeout = 60);

/* ---- sources ------------------------------------------------------------- */

static void begin(void)
{
	header[0] = '\0';
	data_bytes = 0;
}

static void add(const char *name, const char *dtype, const char *shape, uint64_t bytes)
{
	snprintf(header + strlen(header), sizeof(header) - strlen(header),
		 "%s\"%s\":{\"dtype\":\"%s\",\"shape\":%s,\"data_offsets\":[%zu,%zu]}", header[0] ? "," : "{",
		 name, dtype, shape, (size_t)data_bytes, (size_t)(data_bytes + bytes));
	data_bytes += bytes;
}

/* Writes the file, with bytes that do not repeat, and opens it. */
static void open_it(void)
{
	uint64_t state = 88172645463325252u;
	const char *path = in_folder("m.safetensors");
	char *roots[] = {folder};
	int fd;

	strcat(header, "}");
	write_safetensors(path, header, data_bytes);
	file = malloc(data_bytes);
	for (uint64_t i = 0; i < data_bytes; i++) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		file[i] = (char)state;
	}
	fd = open(path, O_WRONLY | O_CLOEXEC);
	cr_assert_eq(pwrite(fd, file, data_bytes, (off_t)(8 + strlen(header))), (ssize_t)data_bytes);
	close(fd);
	cr_assert_eq(source_open(path, &(struct load_choice){0}, &(struct roots){.paths = roots, .count = 1},
				 &source, &error),
		     0, "%s", error.message);
}

static void make(const char *plan, uint32_t ranks)
{
	cr_assert_eq(cut_make(&source, plan, ranks, &cut, &error), 0, "%s", error.message);
	digests = calloc(cut.share_count, sizeof(*digests));
	for (uint32_t i = 0; i < ranks; i++) {
		addresses[i] = calloc(cut.ranks[i].count, sizeof(void *));
		for (size_t k = 0; k < cut.ranks[i].count; k++)
			addresses[i][k] = calloc(1, cut.shares[cut.ranks[i].first + k].bytes + 1);
	}
}

static void forget_cut(void)
{
	for (uint32_t i = 0; i < cut.rank_count; i++) {
		for (size_t k = 0; k < cut.ranks[i].count; k++)
			free(addresses[i][k]);
		free(addresses[i]);
	}
	free(digests);
	digests = NULL;
	cut_clear(&cut);
}

static void forget(void)
{
	forget_cut();
	free(file);
}

/* ---- the reference --------------------------------------------------------- */

/* Whether the rank has byte `at` of the tensor: from the element's place in the dimension. */
static bool belongs(const struct source_tensor *tensor, const struct cut_tensor *way, uint64_t at,
		    uint32_t rank)
{
	const struct dtype_block block = dtype_block(tensor->dtype);
	uint64_t element = at * block.elements / block.bytes, behind = 1, place;

	if (way->dimension == CUT_WHOLE)
		return true;
	for (unsigned i = way->dimension + 1; i < tensor->ndim; i++)
		behind *= tensor->shape[i];
	place = element / behind % tensor->shape[way->dimension];
	return place / (tensor->shape[way->dimension] / cut.rank_count) == rank;
}

static void expect_share(uint32_t rank, size_t position)
{
	const struct cut_share *share = &cut.shares[cut.ranks[rank].first + position];
	const struct source_tensor *tensor = &source.tensors[share->tensor];
	const char *whole = file + (tensor->offset - source.tensors[0].offset),
		   *got = addresses[rank][position];
	struct digest digest = digest_of(got, share->bytes);
	uint64_t count = 0;

	for (uint64_t i = 0; i < tensor->bytes; i++)
		if (belongs(tensor, &cut.tensors[share->tensor], i, rank))
			cr_assert_eq(got[count++], whole[i], "rank %u, %s, byte %zu", rank, tensor->name,
				     (size_t)count - 1);
	cr_assert_eq(count, share->bytes);
	cr_assert_eq(got[count], 0, "nothing is written behind %s", tensor->name);
	cr_assert(digest_equal(&digest, &digests[cut.ranks[rank].first + position]),
		  "the digest of rank %u, %s", rank, tensor->name);
}

static void expect_rank(uint32_t rank)
{
	for (size_t k = 0; k < cut.ranks[rank].count; k++)
		expect_share(rank, k);
}

/* ---- copies ---------------------------------------------------------------- */

static int give_lanes(struct lanes **ret, void *lanes, struct error *unused)
{
	(void)unused;
	*ret = lanes;
	return 0;
}

/* Memory that is not host's, so that bytes go through the ring. */
static struct memory_ops other_ops;
static int writes_left;

static int other_write(const struct memory_device *device, void *to, const void *from, uint64_t bytes,
		       struct error *write_error)
{
	(void)device;
	if (__atomic_fetch_sub(&writes_left, 1, __ATOMIC_RELAXED) <= 0)
		return error_set(write_error, -EIO, NULL, "the device is gone");
	memcpy(to, from, bytes);
	return 0;
}

static int copy_through(struct copy *copy, size_t buffers)
{
	struct lanes *lanes;
	struct ring ring;
	int r;

	cr_assert_eq(ring_make(copy_buffer_bytes(copy->chunk), buffers, &ring, &error), 0);
	cr_assert_eq(lanes_open(copy->targets, copy->target_count, ring.count, &lanes, &error), 0);
	copy->ring = &ring;
	copy->open = give_lanes;
	copy->open_data = lanes;
	r = copy_run(copy, digests, &report, &error);
	lanes_close(lanes);
	ring_free(&ring);
	return r;
}

/* Copies to these ranks. */
static int copy_ranks(uint32_t first, uint32_t count, struct copy copy, bool through_ring)
{
	struct memory_device host, other;
	struct copy_target targets[RANKS_MAX];

	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	other_ops = memory_host;
	other_ops.write = other_write;
	other = (struct memory_device){.ops = &other_ops, .id = "GPU-x"};
	for (uint32_t i = 0; i < count; i++)
		targets[i] = (struct copy_target){.device = through_ring ? &other : &host,
						  .rank = first + i,
						  .addresses = addresses[first + i]};
	copy.source = &source;
	copy.cut = &cut;
	copy.targets = targets;
	copy.target_count = count;
	return through_ring ? copy_through(&copy, 5) : copy_run(&copy, digests, &report, &error);
}

static void expect_cut(const char *plan, uint32_t ranks, size_t chunk, bool through_ring)
{
	make(plan, ranks);
	writes_left = 1 << 30;
	cr_assert_eq(copy_ranks(0, ranks, (struct copy){.chunk = chunk, .readers = 3}, through_ring), 0, "%s",
		     error.message);
	cr_assert_eq(report.counts.warm + report.counts.direct + report.counts.buffered, source.bytes,
		     "each byte is read once");
	for (uint32_t i = 0; i < ranks; i++)
		expect_rank(i);
	forget_cut();
}

static void expect_cut_in_all_ways(const char *plan, uint32_t ranks)
{
	static const size_t chunks[] = {8, 16, 64, 120, 4096, 65536};

	for (size_t i = 0; i < sizeof(chunks) / sizeof(chunks[0]); i++) {
		expect_cut(plan, ranks, chunks[i], false);
		expect_cut(plan, ranks, chunks[i], true);
	}
}

/* ---- tests ----------------------------------------------------------------- */

Test(copy_cut, splits_along_any_dimension)
{
	begin();
	add("before", "U8", "[13]", 13);
	add("d0", "BF16", "[24,7,5]", 1680);
	add("d1", "F32", "[5,24,3]", 1440);
	add("d2", "BF16", "[3,5,48]", 1440);
	add("none", "F32", "[0,24]", 0);
	add("d3", "F64", "[2,3,1,24]", 1152);
	add("after", "U8", "[3]", 3);
	open_it();
	expect_cut_in_all_ways(
		"before copy\nd0 split 0\nd1 split 1\nd2 split 2\nnone split 1\nd3 split 3\nafter rank 1", 2);
	expect_cut_in_all_ways(
		"before rank 0\nd0 split 0\nd1 split 1\nd2 split 2\nnone split 1\nd3 split 3\nafter copy", 8);
	forget();
}

/* Then words of a digest come in pieces. */
Test(copy_cut, splits_runs_of_odd_sizes)
{
	begin();
	add("o0", "U8", "[21,11]", 231);
	add("o1", "U8", "[101,9]", 909);
	add("o2", "BF16", "[7,3,5]", 210);
	add("wide", "U8", "[3,3003]", 9009);
	add("o3", "F4", "[5,12]", 30);
	open_it();
	expect_cut_in_all_ways("o0 split 0\no1 split 1\no2 split 1\nwide split 1\no3 split 1", 3);
	forget();
}

Test(copy_cut, makes_one_rank_of_all)
{
	begin();
	add("a", "U8", "[3,5]", 15);
	add("b", "F32", "[100]", 400);
	open_it();
	expect_cut_in_all_ways("a split 1\nb rank 0", 1);
	forget();
}

/* More tensors than a piece has room for, whose shares are parts of a digest's word. */
Test(copy_cut, takes_many_small_tensors)
{
	begin();
	for (unsigned i = 0; i < PIECE_SPANS_MAX + 10; i++) {
		char name[8];

		snprintf(name, sizeof(name), "t%u", i);
		add(name, "U8", "[2,2]", 4);
	}
	open_it();
	expect_cut_in_all_ways("t* split 1", 2);
	expect_cut_in_all_ways("t* split 0", 2);
	expect_cut_in_all_ways("t* copy", 4);
	forget();
}

/* The pieces of large tensors come in turn. */
Test(copy_cut, splits_what_is_larger_than_pieces)
{
	begin();
	add("rows", "BF16", "[64,1031]", 131968);
	add("columns", "BF16", "[3,4100,4]", 98400);
	open_it();
	expect_cut("rows split 0\ncolumns split 1", 4, 4096, true);
	expect_cut("rows split 0\ncolumns split 1", 4, 4096, false);
	expect_cut("rows split 0\ncolumns split 1", 2, 16384, true);
	expect_cut("rows split 0\ncolumns split 2", 4, 0, false);
	forget();
}

/* So a fetch delivers it in several steps. */
Test(copy_cut, takes_pieces_larger_than_a_step)
{
	begin();
	add("columns", "BF16", "[2,360460]", 1441840);
	add("odd", "U8", "[3]", 3);
	add("rows", "BF16", "[700,1031]", 1443400);
	add("wide", "U8", "[3,900001]", 2700003);
	open_it();
	for (unsigned through_ring = 0; through_ring < 2; through_ring++) {
		expect_cut("odd copy\nrows split 0\ncolumns split 1\nwide split 0", 1, MIB(4), through_ring);
		expect_cut("odd copy\nrows split 1\ncolumns split 1\nwide copy", 1, MIB(1), through_ring);
		cr_assert(cache_drop(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size));
		expect_cut("odd rank 1\nrows split 0\ncolumns split 1\nwide copy", 2, MIB(4), through_ring);
		expect_cut("odd rank 1\nrows split 0\ncolumns split 0\nwide copy", 2, MIB(1), through_ring);
		expect_cut("odd copy\nrows split 0\ncolumns split 1\nwide rank 2", 4, MIB(4), through_ring);
	}
	forget();
}

Test(copy_cut, fetches_what_is_not_cached)
{
	begin();
	add("rows", "BF16", "[64,1031]", 131968);
	add("columns", "BF16", "[1031,64]", 131968);
	open_it();
	for (unsigned through_ring = 0; through_ring < 2; through_ring++) {
		cr_assert(cache_drop(source.files[0].fd, 0, (uint64_t)source.files[0].stat.st_size));
		expect_cut("rows split 0\ncolumns split 1", 4, 16384, through_ring);
	}
	forget();
}

/* As the move of one part needs it. */
Test(copy_cut, fills_some_of_the_ranks)
{
	begin();
	add("rows", "BF16", "[8,1024]", 16384);
	add("other", "U8", "[64]", 64);
	add("columns", "BF16", "[8,1024]", 16384);
	add("norm", "F32", "[3]", 12);
	open_it();
	for (unsigned through_ring = 0; through_ring < 2; through_ring++) {
		writes_left = 1 << 30;
		make("rows split 0\nother rank 0\ncolumns split 1\nnorm copy", 4);
		cr_assert_eq(copy_ranks(1, 2, (struct copy){.chunk = 1024, .readers = 2}, through_ring), 0);
		cr_expect_eq(report.counts.warm + report.counts.direct + report.counts.buffered,
			     16384 / 2 + 16384 + 12, "what only others have is not read");
		expect_rank(1);
		expect_rank(2);
		cr_expect_eq(*(char *)addresses[0][0], 0);
		forget_cut();
	}
	free(file);
}

Test(copy_cut, a_device_that_fails_ends_the_copy)
{
	begin();
	add("rows", "BF16", "[8,1024]", 16384);
	open_it();
	make("rows split 0", 4);
	writes_left = 3;
	cr_assert_eq(copy_ranks(0, 4, (struct copy){.chunk = 1024, .readers = 2}, true), -EIO);
	cr_expect_str_eq(error.message, "the device is gone");
	forget();
}

Test(copy_cut, notices_a_file_that_is_cut_off)
{
	begin();
	add("rows", "BF16", "[8,1024]", 16384);
	open_it();
	make("rows split 1", 4);
	cr_assert_eq(truncate(in_folder("m.safetensors"), 8000), 0);
	cr_assert_eq(copy_ranks(0, 4, (struct copy){.chunk = 1024, .readers = 2}, false), -EIO);
	cr_expect(strstr(error.message, "was truncated while it was read"), "%s", error.message);
	forget();
}
