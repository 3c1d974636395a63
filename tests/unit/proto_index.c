#include "tests/support/fail_alloc.h"
#include "tests/support/any/fd_count.h"
#include "tests/support/proto/index_sample.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

static struct index_builder *b;
static struct index_view view;
static void *data;
static size_t bytes;

static void open_sample(void)
{
	b = sample_builder();
	data = sample_bytes(b, &bytes);
	cr_assert_eq(index_open(data, bytes, &view, &error), 0, "%s", error.message);
}

static void free_sample(void)
{
	index_builder_free(b);
	free(data);
}

TestSuite(index, .init = open_sample, .fini = free_sample);

static const struct index_tensor *find(const char *name)
{
	int64_t position = index_find(&view, name);

	cr_assert_geq(position, 0, "%s", name);
	return &view.tensors[position];
}

Test(index, structs_are_those_of_the_protocol)
{
	cr_expect_eq(sizeof(struct index_header), 88);
	cr_expect_eq(sizeof(struct index_segment), 8);
	cr_expect_eq(sizeof(struct index_tensor), 64);
	cr_expect_eq(sizeof(struct index_pair), 24);
	cr_expect_eq(sizeof(struct index_file), 24);
	cr_expect_eq((const char *)view.heap - (const char *)data,
		     88 + 2 * 8 + 5 * 64 + 2 * 24 + 2 * 24 + 14 * 8);
}

Test(index, names_are_sorted_whatever_came_first)
{
	static const char *const names[] = {"empty", "head", "mask", "scale", "wte"};

	cr_assert_eq(view.header->tensor_count, 5);
	for (uint32_t i = 0; i < 5; i++) {
		cr_expect_str_eq(index_tensor_name(&view, &view.tensors[i]), names[i]);
		cr_expect_eq(index_find(&view, names[i]), i);
	}
	cr_expect_eq(index_find(&view, ""), -ENOENT);
	cr_expect_eq(index_find(&view, "wt"), -ENOENT);
	cr_expect_eq(index_find(&view, "wtf"), -ENOENT);
}

Test(index, tensors_come_back)
{
	const struct index_tensor *wte = find("wte"), *head = find("head"), *scale = find("scale");

	cr_expect(wte->dtype == DTYPE_BF16 && wte->ndim == 2 && wte->bytes == 256 && wte->offset == 256);
	cr_expect(index_shape(&view, wte)[0] == 8 && index_shape(&view, wte)[1] == 16);
	cr_expect(index_strides(&view, wte)[0] == 16 && index_strides(&view, wte)[1] == 1);
	cr_expect(index_strides(&view, head)[0] == 1 && index_strides(&view, head)[1] == 8);
	cr_expect(digest_equal(&wte->digest, &head->digest));
	cr_expect(scale->segment == 1 && scale->ndim == 0 && scale->bytes == 4);
	cr_expect_eq(find("mask")->bytes, 3);
	cr_expect_eq(find("empty")->bytes, 0);
}

Test(index, the_header_comes_back)
{
	cr_expect(view.header->rank == 1 && view.header->world == 2);
	cr_expect(view.header->segment_count == 2 && view.segments[0].bytes == 4096);
	cr_expect_eq(view.header->total_bytes, bytes);
	cr_expect_eq(view.segments[1].bytes, 8192);
}

Test(index, texts_and_files_come_back)
{
	uint32_t count = 7;
	const void *file;

	cr_expect_str_eq(index_metadata(&view, "format"), "pt");
	cr_expect_str_eq(index_metadata(&view, "author"), "");
	cr_expect_null(index_metadata(&view, "none"));
	file = index_file(&view, "config.json", &count);
	cr_assert(file && count == 4);
	cr_expect_arr_eq(file, "{}\0{", 4);
	cr_assert(index_file(&view, "a.txt", &count));
	cr_expect_eq(count, 0);
	count = 7;
	cr_expect_null(index_file(&view, "none", &count));
	cr_expect_eq(count, 7);
}

/* The strings of bytes of docs/protocol.md, put together by hand. */
Test(index, digests_are_those_of_the_protocol)
{
	uint64_t size = 4;
	struct index_builder *one = index_builder_new(0, 1);
	uint64_t layout[] = {4096, 3, 0x636261 /* abc */, DTYPE_U8, 1, 4, 1, 0, 64};
	uint64_t content[14] = {0};
	struct digest digest, tensor = digest_of("data", 4), file = digest_of("{}", 2);
	struct index_header *h;
	size_t count;

	index_builder_segment(one, 4096);
	sample_add(one, "abc", DTYPE_U8, 1, &size, NULL, 0, 64);
	index_builder_digest(one, 0, &tensor);
	index_builder_metadata(one, "key", "a longer value");
	index_builder_file(one, "f", "{}", 2);
	h = sample_bytes(one, &count);
	digest = digest_of(layout, sizeof(layout));
	cr_expect(digest_equal(&h->layout, &digest));
	memcpy(content, &digest, 16);
	memcpy(content + 2, &tensor, 16);
	memcpy(content + 4, (uint64_t[]){3, 14, 0x79656b /* key */}, 24);
	memcpy(content + 7, "a longer value", 14);
	memcpy(content + 9, (uint64_t[]){1, 2, 'f'}, 24);
	memcpy(content + 12, &file, 16);
	digest = digest_of(content, sizeof(content));
	cr_expect(digest_equal(&h->content, &digest));
	index_builder_free(one);
	free(h);
}

Test(index, the_layout_digest_is_not_of_the_content)
{
	struct digest layout = view.header->layout, content = view.header->content, other = digest_of("x", 1);
	struct index_header *h;

	index_builder_digest(b, 2, &other);
	h = sample_bytes(b, &bytes);
	cr_expect(digest_equal(&layout, &h->layout));
	cr_expect(!digest_equal(&content, &h->content));
	free(h);
}

Test(index, one_without_anything)
{
	struct index_builder *none = index_builder_new(0, 1);
	struct index_view empty;
	size_t count;
	void *h = sample_bytes(none, &count);

	cr_expect_eq(count, 88);
	cr_assert_eq(index_open(h, count, &empty, &error), 0);
	cr_expect_eq(index_find(&empty, "x"), -ENOENT);
	cr_expect_null(index_metadata(&empty, "x"));
	index_builder_free(none);
	free(h);
}

/* A tensor that the builder refuses; the error names it. */
static void refuses(struct index_tensor_spec spec, const char *part)
{
	cr_expect_eq(index_builder_tensor(b, &spec, &error), -EINVAL, "%s", part);
	cr_expect(strstr(error.message, part), "%s", error.message);
}

Test(index, the_builder_refuses_tensors_that_are_none)
{
	static uint64_t shape[65], odd = 3, matrix[] = {2, 3};
	static char name[TENSOR_NAME_BYTES_MAX + 2];

	memset(name, 'n', sizeof(name) - 1);
	refuses((struct index_tensor_spec){.name = "", .dtype = DTYPE_U8}, "0 bytes");
	refuses((struct index_tensor_spec){.name = name, .dtype = DTYPE_U8}, "65536 bytes");
	refuses((struct index_tensor_spec){.name = "t", .dtype = 0}, "\"t\"");
	refuses((struct index_tensor_spec){.name = "t", .dtype = DTYPE_F4, .ndim = 1, .shape = &odd}, "\"t\"");
	refuses((struct index_tensor_spec){.name = "t", .dtype = DTYPE_U8, .ndim = 65, .shape = shape}, "65");
	refuses((struct index_tensor_spec){"t", DTYPE_U8, 2, matrix, (int64_t[]){4, 1}, 0, 0}, "dense");
	cr_expect_eq(index_builder_digest(b, 5, &(struct digest){0}), -ERANGE);
	name[TENSOR_NAME_BYTES_MAX] = 0;
	sample_add(b, name, DTYPE_U8, 64, shape, NULL, 0, 0);
	free(data);
	data = sample_bytes(b, &bytes);
}

Test(index, what_was_given_twice)
{
	cr_expect_eq(index_builder_metadata(b, "format", "other"), -EEXIST);
	cr_expect_eq(index_builder_file(b, "config.json", "", 0), -EEXIST);
	cr_expect_eq(index_builder_file(b, "format", "", 0), 0);
	cr_expect_eq(index_builder_file(b, "", "", 0), -EINVAL);
}

Test(index, what_is_no_utf8)
{
	struct index_tensor_spec spec = {.name = "caf\xe9", .dtype = DTYPE_F32};

	cr_expect_eq(index_builder_tensor(b, &spec, &error), -EINVAL);
	cr_expect(strstr(error.message, "tensor 5, \"caf?\", is not UTF-8"), "%s", error.message);
	cr_expect_eq(index_builder_metadata(b, "\xed\xa0\x80", "v"), -EINVAL);
	cr_expect_eq(index_builder_metadata(b, "k", "\xc0\x80"), -EINVAL);
	cr_expect_eq(index_builder_file(b, "\xf5.json", "", 0), -EINVAL);
	cr_expect_eq(index_builder_metadata(b, "k\u00e9", "two\nlines, \xc2\x85 \U0001f600"), 0);
	cr_expect_eq(index_builder_file(b, "\u20ac.json", "\xff", 1), 0);
	free(data);
	data = sample_bytes(b, &bytes);
}

Test(index, finish_validates_as_a_reader)
{
	uint64_t size = 1, ret_bytes;
	int fd = -7;

	sample_add(b, "wte", DTYPE_U8, 1, &size, NULL, 0, 0);
	cr_expect_eq(index_builder_finish(b, &fd, &ret_bytes, &error), -EBADMSG);
	cr_expect(strstr(error.message, "\"wte\" twice"), "%s", error.message);
	cr_expect_eq(fd, -7);
}

Test(index, a_part_has_at_most_252_segments)
{
	for (int i = 2; i < PART_SEGMENTS_MAX; i++)
		cr_assert_eq(index_builder_segment(b, 4096), 0);
	cr_expect_eq(index_builder_segment(b, 4096), -EFBIG);
}

Test(index, files_are_at_most_32_mib)
{
	char *large = calloc(1, INDEX_FILES_BYTES_MAX);

	cr_expect_eq(index_builder_file(b, "large", large, INDEX_FILES_BYTES_MAX - 3), -EFBIG);
	cr_expect_eq(index_builder_file(b, "large", large, INDEX_FILES_BYTES_MAX - 4), 0);
	cr_expect_eq(index_builder_file(b, "more", large, 1), -EFBIG);
	cr_expect_eq(index_builder_file(b, "more", large, 0), 0);
	free(large);
	free(data);
	data = sample_bytes(b, &bytes);
	cr_expect_eq(index_open(data, bytes, &view, &error), 0);
}

Test(index, is_at_most_288_mib)
{
	const size_t most = MIB(96);
	char *large = malloc(most + 1), key[2] = "a";
	uint64_t ret_bytes;
	int fd;

	memset(large, 'x', most);
	large[most] = 0;
	for (; key[0] < 'c'; key[0]++)
		cr_assert_eq(index_builder_metadata(b, key, large), 0);
	cr_expect_eq(index_builder_metadata(b, "d", large), -EFBIG);
	large[most - 300] = 0; /* the heap still holds it, the index as a whole does not */
	cr_expect_eq(index_builder_metadata(b, "d", large), 0);
	cr_expect_eq(index_builder_finish(b, &fd, &ret_bytes, &error), -EFBIG);
	memset(large, 'n', 1000);
	large[1000] = 0;
	cr_expect_eq(
		index_builder_tensor(b, &(struct index_tensor_spec){.name = large, .dtype = DTYPE_U8}, &error),
		-EFBIG);
	cr_expect(strstr(error.message, "288 MiB"), "%s", error.message);
	free(large);
}

/* And lives on, although nobody ignores SIGXFSZ. */
Test(index, refuses_what_the_file_limit_has_no_room_for)
{
	char large[8192];
	struct rlimit limit;
	uint64_t ret_bytes;
	int fd;

	memset(large, 'x', sizeof large);
	cr_assert_eq(index_builder_file(b, "large", large, sizeof large), 0);
	getrlimit(RLIMIT_FSIZE, &limit);
	setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, limit.rlim_max});
	cr_expect_eq(index_builder_finish(b, &fd, &ret_bytes, &error), -ENOSPC);
	setrlimit(RLIMIT_FSIZE, &limit);
	cr_expect(strstr(error.message, "RLIMIT_FSIZE of 4.0 KiB"), "%s", error.message);
	cr_expect(strstr(error.detail, "LimitFSIZE="), "%s", error.detail);
}

Test(index, free_takes_null_and_gives_it)
{
	cr_expect_null(index_builder_free(NULL));
	cr_expect_null(index_builder_free(index_builder_new(0, 1)));
}

/* Everything once; the first error. */
static int build_all(int *ret_fd)
{
	struct index_builder *all = index_builder_new(0, 1);
	struct index_tensor_spec spec = {.name = "t", .dtype = DTYPE_U8, .ndim = 1, .shape = &(uint64_t){4}};
	uint64_t count;
	int r = all ? 0 : -ENOMEM;

	if (r == 0)
		r = index_builder_segment(all, 4096);
	if (r == 0)
		r = index_builder_tensor(all, &spec, &error);
	if (r == 0)
		r = index_builder_metadata(all, "k", "v");
	if (r == 0)
		r = index_builder_metadata(all, "k2", "v");
	if (r == 0)
		r = index_builder_file(all, "f", "data", 4);
	if (r == 0)
		r = index_builder_finish(all, ret_fd, &count, &error);
	index_builder_free(all);
	return r;
}

Test(index, survives_every_failing_allocation)
{
	int before = fd_count(), fd = -1;
	unsigned n = 1;

	for (;; n++) {
		int r;

		fail_alloc_arm(n);
		r = build_all(&fd);
		if (!fail_alloc_disarm())
			break;
		cr_expect_eq(r, -ENOMEM, "%u: %d", n, r);
		cr_expect_eq(fd_count(), before);
	}
	cr_expect_gt(n, 8);
	cr_expect_geq(fd, 0);
	close(fd);
}

Test(index, what_failed_may_be_given_again)
{
	for (unsigned n = 1;; n++) {
		struct index_builder *again = index_builder_new(0, 1);
		bool failed;

		fail_alloc_arm(n);
		index_builder_metadata(again, "k", "v");
		index_builder_file(again, "f", "data", 4);
		failed = fail_alloc_disarm();
		cr_expect_eq(index_builder_metadata(again, "k2", "v"), 0);
		if (index_builder_metadata(again, "k", "v") == 0)
			cr_expect(failed);
		if (index_builder_file(again, "f", "data", 4) == 0)
			cr_expect(failed);
		index_builder_free(again);
		if (!failed)
			break;
	}
}
