/* What a plan makes of a source: shapes, ranges, and what it refuses. */
#include "loader/cut/cut.h"
#include "proto/index/dtype.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct source_tensor tensors[8];
static uint64_t shapes[8][4];
static struct source source;
static struct cut cut;
static struct error error;

static void setup(void)
{
	source = (struct source){.tensors = tensors, .world = 1};
}

static void teardown(void)
{
	cut_clear(&cut);
}

TestSuite(cut, .init = setup, .fini = teardown);

/* The next tensor of the source; the shape ends with 0 if it has fewer than 3 dimensions. */
static void add(const char *name, unsigned dtype, unsigned ndim, uint64_t a, uint64_t b, uint64_t c)
{
	struct source_tensor *tensor = &tensors[source.tensor_count];
	uint64_t *shape = shapes[source.tensor_count++];

	shape[0] = a;
	shape[1] = b;
	shape[2] = c;
	*tensor = (struct source_tensor){.name = name, .dtype = dtype, .ndim = ndim, .shape = shape};
	cr_assert_eq(dtype_bytes(dtype, ndim, shape, &tensor->bytes), 0);
	source.bytes += tensor->bytes;
}

static void make(const char *plan, uint32_t ranks)
{
	cr_assert_eq(cut_make(&source, plan, ranks, &cut, &error), 0, "%s", error.message);
}

static void expect_refused(const char *plan, uint32_t ranks, const char *message)
{
	cr_expect_eq(cut_make(&source, plan, ranks, &cut, &error), -EINVAL, "%s", plan);
	cr_expect_str_eq(error.message, message);
	cr_expect_null(cut.tensors);
}

static const struct cut_share *share(const char *name, uint32_t rank)
{
	for (size_t i = 0; i < source.tensor_count; i++)
		if (strcmp(tensors[i].name, name) == 0 && cut_position(&cut, i, rank) != CUT_NO_SHARE)
			return &cut.shares[cut_position(&cut, i, rank)];
	return NULL;
}

Test(cut, gives_each_rank_its_shape)
{
	add("rows", DTYPE_BF16, 2, 8, 6, 0);
	add("columns", DTYPE_F32, 3, 5, 3, 4);
	add("norm", DTYPE_F32, 1, 7, 0, 0);
	add("head", DTYPE_U8, 2, 3, 3, 0);
	make("rows split 0\ncolumns split 2\nnorm copy\nhead rank 1", 4);
	cr_expect_eq(cut.rank_count, 4);
	for (uint32_t rank = 0; rank < 4; rank++) {
		cr_expect_eq(cut.ranks[rank].count, rank == 1 ? 4 : 3);
		cr_expect_eq(cut.ranks[rank].bytes, 24 + 60 + 28 + (rank == 1 ? 9u : 0u));
		cr_expect_eq(share("rows", rank)->shape[0], 2);
		cr_expect_eq(share("rows", rank)->shape[1], 6);
		cr_expect_eq(share("rows", rank)->bytes, 24);
		cr_expect_eq(share("columns", rank)->shape[0], 5);
		cr_expect_eq(share("columns", rank)->shape[1], 3);
		cr_expect_eq(share("columns", rank)->shape[2], 1);
		cr_expect_eq(share("norm", rank)->shape[0], 7);
		cr_expect_eq(!share("head", rank), rank != 1);
	}
	cr_expect_eq(cut.bytes, 4 * 112 + 9);
	cr_expect_eq(cut.share_count, 13);
	cr_expect_eq(shapes[0][0], 8, "the source's shapes stay");
}

Test(cut, makes_one_rank_too)
{
	add("a", DTYPE_U8, 1, 5, 0, 0);
	add("b", DTYPE_U8, 1, 5, 0, 0);
	make("a split 0\nb rank 0", 1);
	cr_expect_eq(cut.bytes, 10);
}

/* A source may have less than its files. */
Test(cut, takes_a_rule_that_only_the_files_have_a_tensor_for)
{
	struct format_tensor left = {.name = "left"};
	struct source_file file = {.content = {.tensors = &left, .count = 1}};

	add("a", DTYPE_U8, 1, 6, 0, 0);
	source.files = &file;
	source.file_count = 1;
	expect_refused("a copy\ngone split 0", 2,
		       "line 2 of the cut plan (gone) matches no tensor of the source");
	make("a copy\nleft split 0", 2);
	cr_expect_eq(cut.share_count, 2);
}

Test(cut, refuses_rules_and_tensors_that_do_not_fit)
{
	add("a", DTYPE_U8, 1, 6, 0, 0);
	add("b", DTYPE_U8, 2, 4, 6, 0);
	expect_refused("a copy", 2, "no rule of the cut plan matches the tensor \"b\"");
	expect_refused("* copy\nb split 0", 2, "lines 1 (*) and 2 (b) of the cut plan match the tensor \"b\"");
	expect_refused("* copy\nc split 0", 2, "line 2 of the cut plan (c) matches no tensor of the source");
	expect_refused("a copy\nb rank 2", 2, "line 2 of the cut plan (b) names rank 2, but there are 2 ranks");
	expect_refused("c rank 2 optional\n* copy", 2,
		       "line 1 of the cut plan (c) names rank 2, but there are 2 ranks");
	expect_refused("* rank 1", 2, "the cut plan gives no tensor to rank 0");
	expect_refused("a split 1\nb copy", 2,
		       "line 1 of the cut plan splits the tensor \"a\" along dimension 1: it has 1 dimension, "
		       "counted from 0");
	expect_refused(
		"a copy\nb split 1", 4,
		"line 2 of the cut plan splits the tensor \"b\" along dimension 1: its 6 rows there can't be "
		"split evenly among 4 ranks");
	expect_refused("nonsense", 2, "line 1 of the cut plan has a glob and no action: \"nonsense\"");
}

/* The configuration of the source. */
static void configure(const char *text)
{
	static struct source_extra config = {.name = (char *)"config.json"};

	config.data = (char *)text;
	config.bytes = strlen(text);
	source.extras = &config;
	source.extra_count = 1;
}

#define HEADS "a split 0 of heads"

Test(cut, cuts_through_no_head)
{
	add("a", DTYPE_U8, 2, 16, 4, 0);
	configure("{\"heads\": 2}");
	make(HEADS, 2);
	cr_expect_eq(share("a", 1)->shape[0], 8);
	cut_clear(&cut);
	expect_refused(
		HEADS, 4,
		"line 1 of the cut plan splits the tensor \"a\" along dimension 0: its 16 rows there are 2 groups "
		"(heads in config.json), which can't be split evenly among 4 ranks");
	configure("{\"heads\": 3}");
	cr_expect_eq(cut_make(&source, HEADS, 2, &cut, &error), -EINVAL, "3 groups of 16 rows");
	configure("{\"heads\": 0}");
	cr_expect_eq(cut_make(&source, HEADS, 2, &cut, &error), -EINVAL, "no group at all");
}

Test(cut, finds_the_heads_of_the_language_model)
{
	add("a", DTYPE_U8, 2, 16, 4, 0);
	configure(
		"{\"vision_config\": {\"heads\": 3}, \"text_config\": {\"deep\": [{\"heads\": 5}], \"heads\": 2}}");
	make(HEADS, 2);
	cr_expect_eq(cut.missing_count, 0);
	cut_clear(&cut);
	/* What stands at the top counts, wherever it stands there. */
	configure("{\"text_config\": {\"heads\": 3}, \"heads\": 2}");
	make(HEADS, 2);
	cut_clear(&cut);
	configure("{\"heads\": 2, \"text_config\": {\"heads\": 3}}");
	make(HEADS, 2);
}

Test(cut, tells_which_heads_it_does_not_know)
{
	static const char *const nothing[] = {"{}", "{\"heads\": \"2\"}", "{\"heads\": 2",   "[1]",
					      "",   "{\"heads\": -2}",    "{\"heads\": 2.5}"};

	add("a", DTYPE_U8, 2, 16, 4, 0);
	add("b", DTYPE_U8, 2, 16, 4, 0);
	for (size_t i = 0; i < sizeof(nothing) / sizeof(nothing[0]); i++) {
		configure(nothing[i]);
		make("* split 0 of heads", 4);
		cr_expect_eq(cut.missing_count, 1, "%s", nothing[i]);
		cr_expect_str_eq(cut.missing[0], "heads");
		cut_clear(&cut);
	}
}

#define BLOCKS_OF(sizes) "{\"quantization_config\": {\"weight_block_size\": " sizes "}}"

/* 192 rows have 2 scales: one for 128, and one for 64. */
Test(cut, tears_no_block_from_its_scale)
{
	add("m.weight", DTYPE_F8_E4M3, 2, 192, 256, 0);
	add("m.weight_scale_inv", DTYPE_F32, 2, 2, 2, 0);
	configure(BLOCKS_OF("[128, 128]"));
	expect_refused(
		"* split 0", 2,
		"the tensor \"m.weight\" has a scale for 128 rows each in dimension 0, and 2 ranks would have 96 rows each: a block "
		"would be torn from its scale");
	make("* split 1", 2);
	cut_clear(&cut);
	make("m.weight split 0\nm.weight_scale_inv copy", 2);
	cut_clear(&cut);
	/* Without the configuration, blocks of 96 are as likely. */
	configure("{}");
	make("* split 0", 2);
}

Test(cut, asks_how_large_a_block_is)
{
	add("m.weight", DTYPE_F8_E4M3, 2, 200, 4, 0);
	add("m.weight_scale", DTYPE_F32, 2, 16, 1, 0);
	cr_expect_eq(cut_make(&source, "* split 0", 2, &cut, &error), -EINVAL);
	cr_expect(strstr(error.message, "200 rows in dimension 0 and 16 scales for them"), "%s", error.message);
}

/* A scale for each row, for the whole tensor, and for each expert's blocks. */
Test(cut, splits_scales_as_their_weights)
{
	add("a.weight", DTYPE_F8_E4M3, 2, 6, 4, 0);
	add("a.weight_scale", DTYPE_F32, 2, 6, 1, 0);
	add("b.weight", DTYPE_F8_E4M3, 3, 3, 256, 4);
	add("b.weight_scale_inv", DTYPE_F32, 3, 3, 2, 1);
	configure(BLOCKS_OF("[128, 128]"));
	make("a.* split 0\nb.* split 1", 2);
	cut_clear(&cut);
	expect_refused("a.* copy\nb.* split 1", 4,
		       "line 2 of the cut plan splits the tensor \"b.weight_scale_inv\" along dimension 1: "
		       "its 2 rows there can't be split evenly among 4 ranks");
}

Test(cut, an_optional_rule_may_match_nothing)
{
	add("a", DTYPE_U8, 1, 6, 0, 0);
	make("a copy\nb split 0 optional", 3);
	cr_expect_eq(cut.bytes, 18);
}

Test(cut, refuses_files_per_rank)
{
	add("a", DTYPE_U8, 1, 6, 0, 0);
	source.world = 2;
	expect_refused("a copy", 2, "the source has files for 2 ranks, so it is cut already");
}

Test(cut, splits_small_elements_at_whole_bytes_only)
{
	add("a", DTYPE_F4, 2, 2, 4, 0);
	make("a split 1", 2);
	cr_expect_eq(cut.shares[0].bytes, 2);
	cut_clear(&cut);
	expect_refused(
		"a split 1", 4,
		"line 1 of the cut plan splits the tensor \"a\" along dimension 1: a share of its F4 elements "
		"is not a whole number of bytes");
	make("a split 0", 2);
}

Test(cut, splits_tensors_without_bytes)
{
	add("a", DTYPE_F32, 2, 0, 4, 0);
	add("b", DTYPE_F32, 2, 4, 0, 0);
	make("a split 1\nb split 0", 2);
	cr_expect_eq(share("a", 1)->shape[0], 0);
	cr_expect_eq(share("a", 1)->shape[1], 2);
	cr_expect_eq(share("b", 0)->shape[0], 2);
	cr_expect_eq(cut_before(&cut.tensors[0], 1, 0), 0);
}

/* The ranks of one byte, as the definition says it. */
Test(cut, counts_and_packs_bytes_of_any_range)
{
	char whole[60], packed[60];

	for (size_t i = 0; i < sizeof(whole); i++)
		whole[i] = (char)i;
	add("a", DTYPE_U8, 3, 5, 6, 2);
	make("a split 1", 3);
	cr_assert_eq(cut.tensors[0].row, 12);
	cr_assert_eq(cut.tensors[0].run, 4);
	for (uint64_t begin = 0; begin <= 60; begin++)
		for (uint64_t end = begin; end <= 60; end++)
			for (uint32_t rank = 0; rank < 3; rank++) {
				size_t count = 0;

				cut_pack(&cut.tensors[0], rank, begin, whole + begin, end - begin, packed);
				for (uint64_t i = begin; i < end; i++)
					if (i % 12 / 4 == rank)
						cr_assert_eq(packed[count++], (char)i);
				cr_assert_eq(cut_below(&cut.tensors[0], rank, end),
					     (rank > 0 ? cut_before(&cut.tensors[0], 0, end) : 0) +
						     (rank > 1 ? cut_before(&cut.tensors[0], 1, end) : 0));
				cr_assert_eq(cut_before(&cut.tensors[0], rank, end) -
						     cut_before(&cut.tensors[0], rank, begin),
					     count);
			}
}
