/* Damage: a valid index in which one thing is changed. */
#include "tests/support/fail_alloc.h"
#include "tests/support/proto/index_sample.h"

#include <errno.h>

static void *data;
static size_t bytes;
static struct index_builder *b;

/* In the order of names: see sample_builder. */
enum { EMPTY, HEAD, MASK, SCALE, WTE };
static struct index_header *h;
static struct index_segment *segments;
static struct index_tensor *tensors;
static struct index_pair *metadata;
static struct index_file *files;
static uint64_t *dims;
static char *heap;

static void open_sample(void)
{
	struct index_view view;

	b = sample_builder();
	data = sample_bytes(b, &bytes);
	h = data;
	index_sections(data, &view);
	segments = (void *)view.segments;
	tensors = (void *)view.tensors;
	metadata = (void *)view.metadata;
	files = (void *)view.files;
	dims = (void *)view.dims;
	heap = (char *)data + h->heap_offset;
}

static void free_sample(void)
{
	index_builder_free(b);
	free(data);
}

TestSuite(index_open, .init = open_sample, .fini = free_sample);

/* Digests as the changed index needs them. */
static void redigest(void)
{
	struct index_view view = {h, segments, tensors, metadata, files, dims, heap};

	h->layout = index_layout_digest(&view);
	h->content = index_content_digest(&view);
}

static void refuses(const char *part)
{
	struct index_view view = {.heap = "kept"};

	cr_expect_eq(index_open(data, bytes, &view, &error), -EBADMSG);
	cr_expect(strstr(error.message, part), "%s", error.message);
	cr_expect_str_eq(view.heap, "kept");
}

static void accepts(void)
{
	struct index_view view;

	redigest();
	cr_expect_eq(index_open(data, bytes, &view, &error), 0, "%s", error.message);
}

#define DAMAGE(name, part, ...)                                                                                \
	Test(index_open, name)                                                                                 \
	{                                                                                                      \
		__VA_ARGS__;                                                                                   \
		refuses(part);                                                                                 \
	}

/* ---- the header -------------------------------------------------------- */

DAMAGE(refuses_less_than_a_header, "88 to", bytes = 87)
DAMAGE(refuses_more_than_288_mib, "88 to", bytes = INDEX_BYTES_MAX + 1)
DAMAGE(refuses_another_magic, "GPUWMIX1", h->magic[7] = '2')
DAMAGE(refuses_another_size, "says that it has", h->total_bytes++)
DAMAGE(refuses_more_dims_than_fit, "sections", h->dim_count = UINT64_MAX / 8)
DAMAGE(refuses_dims_that_overflow, "sections", h->dim_count = UINT64_MAX / 4)
DAMAGE(refuses_a_heap_elsewhere, "sections", h->heap_offset -= 8)
DAMAGE(refuses_more_tensors_than_fit, "sections", h->heap_offset += 64ull * (UINT32_MAX - h->tensor_count),
       h->tensor_count = UINT32_MAX)
DAMAGE(refuses_rank_of_world, "rank 2 of 2", h->rank = 2)
DAMAGE(refuses_no_world, "rank 1 of 0", h->world = 0)
DAMAGE(refuses_a_wrong_layout_digest, "layout digest", h->layout.bytes[3] ^= 1)
DAMAGE(refuses_a_wrong_content_digest, "content digest", h->content.bytes[3] ^= 1)
DAMAGE(digests_the_tensors_digests, "content digest", tensors[MASK].digest.bytes[0] ^= 1)

Test(index_open, refuses_253_segments)
{
	struct index_header *large = calloc(1, 88 + 8 * 253);

	memcpy(large->magic, INDEX_MAGIC, 8);
	large->segment_count = 253;
	large->world = 1;
	large->total_bytes = large->heap_offset = bytes = 88 + 8 * 253;
	free(data);
	data = large;
	refuses("253 segments");
}

/* ---- names and places in the heap -------------------------------------- */

DAMAGE(refuses_an_empty_name, "bad name for tensor 2", tensors[MASK].name_bytes = 0)
DAMAGE(refuses_a_name_outside, "bad name for tensor 2", tensors[MASK].name = UINT64_MAX)
DAMAGE(refuses_a_name_at_the_end, "bad name for tensor 2", tensors[MASK].name = bytes - h->heap_offset)
DAMAGE(refuses_a_name_without_its_zero, "bad name for tensor 2", tensors[MASK].name_bytes--)
DAMAGE(refuses_a_zero_in_a_name, "bad name for tensor 2", heap[tensors[MASK].name + 1] = 0)
DAMAGE(refuses_a_name_that_is_no_utf8, "bad name for tensor 2", heap[tensors[MASK].name + 3] = '\xe9')
DAMAGE(refuses_a_key_that_is_no_utf8, "metadata entry 1", heap[metadata[1].key] = '\xff')
DAMAGE(refuses_a_value_that_is_no_utf8, "metadata entry 1", heap[metadata[1].value] = '\xc0')
DAMAGE(refuses_a_file_name_that_is_no_utf8, "for file 1", heap[files[1].name + 1] = '\x80')
DAMAGE(refuses_names_out_of_order, "out of order", heap[tensors[MASK].name] = 'g')
DAMAGE(refuses_a_name_twice, "twice", tensors[MASK].name = tensors[HEAD].name)
DAMAGE(refuses_texts_that_share_bytes, "heap", tensors[MASK].name_bytes += 100)
DAMAGE(refuses_files_that_share_bytes, "heap", files[1].content_bytes += 100)
DAMAGE(refuses_shapes_that_share_entries, "room for", tensors[SCALE].ndim = 2)

Test(index_open, refuses_a_name_that_is_too_long)
{
	struct index_builder *long_name = index_builder_new(0, 1);
	char *name = malloc(TENSOR_NAME_BYTES_MAX + 2);

	memset(name, 'n', TENSOR_NAME_BYTES_MAX + 1);
	name[TENSOR_NAME_BYTES_MAX + 1] = 0;
	index_builder_segment(long_name, 4096);
	index_builder_metadata(long_name, name, "");
	name[TENSOR_NAME_BYTES_MAX] = 0;
	sample_add(long_name, name, DTYPE_U8, 0, NULL, NULL, 0, 0);
	free(data);
	h = data = sample_bytes(long_name, &bytes);
	tensors = (void *)((char *)data + 88 + 8);
	metadata = (void *)(tensors + 1);
	tensors[0].name = metadata[0].key;
	tensors[0].name_bytes = metadata[0].key_bytes;
	metadata[0].key_bytes = 0;
	refuses("bad name for tensor 0");
	index_builder_free(long_name);
	free(name);
}

DAMAGE(refuses_a_key_outside, "metadata entry 1", metadata[1].key = 1ull << 40)
DAMAGE(refuses_a_key_without_its_zero, "metadata entry 1", metadata[1].key_bytes--)
DAMAGE(refuses_a_value_without_its_zero, "metadata entry 1", metadata[1].value_bytes--)
DAMAGE(refuses_keys_out_of_order, "out of order", heap[metadata[1].key] = 'A')
DAMAGE(refuses_a_key_twice, "\"author\" twice", metadata[1].key = metadata[0].key)
DAMAGE(refuses_a_file_without_a_name, "for file 0", files[0].name_bytes = 0)
DAMAGE(refuses_a_file_name_outside, "for file 1", files[1].name = 1ull << 40)
DAMAGE(refuses_content_outside, "for file 1", files[1].content = 1ull << 40)
DAMAGE(refuses_content_beyond_the_end, "for file 1", files[1].content = bytes - h->heap_offset - 1)
DAMAGE(refuses_files_out_of_order, "out of order", heap[files[0].name] = 'z')

/* ---- shapes ------------------------------------------------------------ */

DAMAGE(refuses_an_unknown_dtype, "dtype 33, which this gpuwm does not know", tensors[MASK].dtype = DTYPE_END)
DAMAGE(refuses_a_reserved_field, "reserved", tensors[MASK].reserved = 1)
DAMAGE(refuses_a_shape_outside, "outside of itself", tensors[MASK].dims = h->dim_count + 1)
DAMAGE(refuses_a_shape_beyond_the_end, "outside of itself", tensors[MASK].dims = h->dim_count - 1)
DAMAGE(refuses_bytes_that_are_not_the_shapes, "which its shape", tensors[MASK].bytes++)
DAMAGE(refuses_a_shape_of_half_bytes, "which its shape", dims[tensors[MASK].dims]++)
DAMAGE(refuses_strides_of_another_shape, "permutation", dims[tensors[WTE].dims + 2] = 17)
DAMAGE(refuses_negative_strides, "permutation", dims[tensors[WTE].dims + 3] = (uint64_t)-1)
DAMAGE(refuses_strides_that_repeat, "permutation", dims[tensors[WTE].dims + 2] = 1)

Test(index_open, refuses_65_dimensions)
{
	struct index_builder *wide = index_builder_new(0, 1);
	uint64_t shape[64] = {0};

	index_builder_segment(wide, 4096);
	sample_add(wide, "a", DTYPE_U8, 64, shape, NULL, 0, 0);
	sample_add(wide, "b", DTYPE_U8, 64, shape, NULL, 0, 0);
	free(data);
	data = sample_bytes(wide, &bytes);
	tensors = (void *)((char *)data + 88 + 8);
	tensors[0].ndim = 65;
	tensors[1].ndim = 1;
	refuses("65 dimensions");
	index_builder_free(wide);
}

Test(index_open, strides_of_one_and_of_nothing_are_free)
{
	dims[tensors[EMPTY].dims + 2] = 77;
	accepts();
	cr_expect(index_strides_dense(DTYPE_U8, 3, (uint64_t[]){4, 1, 2}, (int64_t[]){2, -99, 1}));
	cr_expect(index_strides_dense(DTYPE_F4, 2, (uint64_t[]){1, 2}, (int64_t[]){0, 1}));
	cr_expect(!index_strides_dense(DTYPE_U8, 3, (uint64_t[]){4, 1, 2}, (int64_t[]){1, 1, 1}));
}

Test(index_open, strides_may_be_any_permutation_of_whole_bytes)
{
	uint64_t shape[] = {2, 3, 5};

	cr_expect(index_strides_dense(DTYPE_U8, 3, shape, (int64_t[]){15, 5, 1}));
	cr_expect(index_strides_dense(DTYPE_U8, 3, shape, (int64_t[]){1, 10, 2}));
	cr_expect(index_strides_dense(DTYPE_U8, 3, shape, (int64_t[]){3, 1, 6}));
	cr_expect(!index_strides_dense(DTYPE_U8, 3, shape, (int64_t[]){15, 5, 2}));
	cr_expect(!index_strides_dense(DTYPE_U8, 3, shape, (int64_t[]){15, -5, 1}));
}

Test(index_open, strides_below_a_byte_are_plain)
{
	uint64_t shape[] = {4, 8};

	cr_expect(index_strides_dense(DTYPE_F4, 2, shape, (int64_t[]){8, 1}));
	cr_expect(!index_strides_dense(DTYPE_F4, 2, shape, (int64_t[]){1, 4}));
	cr_expect(!index_strides_dense(DTYPE_F6_E2M3, 2, shape, (int64_t[]){1, 4}));
}

Test(index_open, strides_of_blocks_are_plain)
{
	uint64_t shape[] = {2, 256};

	cr_expect(index_strides_dense(DTYPE_Q4_K, 2, shape, (int64_t[]){256, 1}));
	cr_expect(!index_strides_dense(DTYPE_Q4_K, 2, shape, (int64_t[]){1, 2}));
}

/* A block needs no alignment. The bytes and the last dimension are those of whole blocks. */
Test(index_open, blocks_lie_anywhere)
{
	struct index_builder *builder = index_builder_new(0, 1);
	uint64_t shape[] = {2, 512};
	struct index_view view;

	index_builder_segment(builder, 4096);
	sample_add(builder, "t", DTYPE_Q4_K, 2, shape, NULL, 0, 7);
	free(data);
	h = data = sample_bytes(builder, &bytes);
	cr_assert_eq(index_open(data, bytes, &view, &error), 0, "%s", error.message);
	tensors = (void *)view.tensors;
	dims = (void *)view.dims;
	cr_expect_eq(tensors[0].bytes, 4 * 144);
	tensors[0].bytes += 144;
	refuses("which its shape");
	tensors[0].bytes -= 144;
	dims[1] = 511;
	refuses("which its shape");
	index_builder_free(builder);
}

Test(index_open, strides_of_more_than_64_bits)
{
	uint64_t shape[] = {1ull << 40, 1ull << 40};

	cr_expect(!index_strides_dense(DTYPE_U8, 2, shape, (int64_t[]){1ll << 40, 1}));
}

/* ---- places ------------------------------------------------------------ */

DAMAGE(refuses_a_segment_that_is_not_there, "segment 2 of 2", tensors[MASK].segment = 2)
DAMAGE(refuses_an_offset_outside, "outside of segment 1", tensors[MASK].offset = 8193)
DAMAGE(refuses_an_end_outside, "outside of segment 1", tensors[MASK].offset = 8190)
DAMAGE(refuses_an_offset_that_overflows, "outside of segment 0", tensors[WTE].offset = UINT64_MAX - 1)
DAMAGE(refuses_an_unaligned_tensor, "aligned", tensors[WTE].offset = 257)
DAMAGE(refuses_an_unaligned_empty_tensor, "aligned", tensors[EMPTY].offset = 1)
DAMAGE(refuses_an_empty_tensor_outside, "outside of segment 1", tensors[EMPTY].offset = 8200)
DAMAGE(refuses_tensors_that_overlap, "overlap", tensors[HEAD].offset = 258)
DAMAGE(refuses_tied_tensors_of_other_digests, "overlap", tensors[HEAD].digest.bytes[0] ^= 1)

Test(index_open, refuses_a_smaller_tensor_in_the_same_place)
{
	tensors[SCALE].segment = 0;
	tensors[SCALE].offset = 256;
	tensors[SCALE].digest = tensors[WTE].digest;
	refuses("overlap");
}

Test(index_open, refuses_one_byte_of_overlap)
{
	tensors[MASK].segment = 0;
	tensors[MASK].offset = 511;
	refuses("overlap");
	tensors[MASK].offset = 254;
	refuses("overlap");
	tensors[MASK].offset = 512;
	accepts();
}

Test(index_open, neighbours_do_not_overlap)
{
	tensors[HEAD].offset = 512;
	tensors[HEAD].digest.bytes[0] ^= 1;
	accepts();
	tensors[SCALE].segment = 0;
	tensors[SCALE].offset = 252;
	accepts();
}

Test(index_open, the_same_place_in_another_segment_is_another)
{
	tensors[HEAD].segment = 1;
	tensors[HEAD].digest.bytes[0] ^= 1;
	accepts();
}

Test(index_open, empty_tensors_lie_anywhere)
{
	tensors[EMPTY].segment = 0;
	tensors[EMPTY].offset = 264;
	accepts();
}

Test(index_open, no_memory_to_check_with)
{
	struct index_view view;

	fail_alloc_arm(1);
	cr_expect_eq(index_open(data, bytes, &view, &error), -ENOMEM);
	cr_expect(fail_alloc_disarm());
}

Test(index_open, files_are_at_most_32_mib)
{
	struct index_builder *large = index_builder_new(0, 1);
	char *content = calloc(1, INDEX_FILES_BYTES_MAX);

	cr_assert_eq(index_builder_file(large, "a", content, INDEX_FILES_BYTES_MAX), 0);
	cr_assert_eq(index_builder_metadata(large, "k", "and more to take from"), 0);
	free(content);
	free(data);
	h = data = sample_bytes(large, &bytes);
	metadata = (void *)(h + 1);
	files = (void *)(metadata + 1);
	h->metadata_count = 0;
	h->file_count = 2; /* one that was the text's: its fields are those of a file */
	memmove(files - 1, files, sizeof(*files));
	files[0] = files[-1];
	files[-1].content_bytes = 1;
	files[0].content_bytes = INDEX_FILES_BYTES_MAX;
	heap = (char *)data + h->heap_offset;
	memcpy(heap + files[0].content + INDEX_FILES_BYTES_MAX, "b", 2);
	files[0].name = files[0].content + INDEX_FILES_BYTES_MAX;
	refuses("files of 33554433 bytes");
	index_builder_free(large);
}

/* ---- trusted ----------------------------------------------------------- */

Test(index_open, trusted_sees_the_header_only)
{
	struct index_view view;

	tensors[WTE].offset = 1;
	h->content.bytes[0] ^= 1;
	cr_assert_eq(index_open_trusted(data, bytes, &view, &error), 0);
	cr_expect_eq(index_find(&view, "wte"), WTE);
	h->heap_offset += 8;
	cr_expect_eq(index_open_trusted(data, bytes, &view, &error), -EBADMSG);
}
