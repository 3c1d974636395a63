#include "../../loader/copy/reader.h"

#include <criterion/criterion.h>
#include <stdlib.h>

#define TENSORS_MAX 100000

static struct source source;
static struct piece piece;
static struct piece_cursor cursor;

static void setup(void)
{
	source = (struct source){.tensors = calloc(TENSORS_MAX, sizeof(*source.tensors))};
	cursor = (struct piece_cursor){0};
}

static void teardown(void)
{
	free(source.tensors);
}

TestSuite(piece, .init = setup, .fini = teardown);

/* The next tensor of the file, right behind the last one. */
static void add(uint32_t file, uint64_t bytes)
{
	const struct source_tensor *last = &source.tensors[source.tensor_count - !!source.tensor_count];
	bool first = source.tensor_count == 0 || last->file != file;

	source.tensors[source.tensor_count++] = (struct source_tensor){
		.file = file, .offset = first ? 1001 : last->offset + last->bytes, .bytes = bytes};
	source.bytes += bytes;
}

static void expect_next(uint64_t offset, uint64_t bytes, uint32_t spans)
{
	cr_assert(piece_next(&source, 64, &cursor, &piece));
	cr_expect_eq(piece.offset, offset, "%zu", (size_t)piece.offset);
	cr_expect_eq(piece.bytes, bytes, "%zu", piece.bytes);
	cr_expect_eq(piece.span_count, spans, "%u", piece.span_count);
}

Test(piece, runs_across_tensors)
{
	add(0, 10);
	add(0, 0);
	add(0, 20);
	expect_next(1001, 30, 2);
	cr_expect_eq(piece.spans[1].tensor, 2, "an empty tensor is in no piece");
	cr_expect_not(piece_next(&source, 64, &cursor, &piece));
	cr_expect_not(piece_next(&source, 64, &cursor, &piece));
}

Test(piece, cuts_a_tensor_at_its_words)
{
	add(0, 13);
	add(0, 100);
	expect_next(1001, 13 + 48, 2);
	expect_next(1062, 52, 1);
	cr_expect_eq(piece.spans[0].tensor, 1);
	cr_expect_eq(piece.spans[0].offset, 48);
	cr_expect_not(piece_next(&source, 64, &cursor, &piece));
}

Test(piece, ends_before_a_tensor_that_has_no_room_for_a_word)
{
	add(0, 60);
	add(0, 100);
	expect_next(1001, 60, 1);
	expect_next(1061, 64, 1);
}

Test(piece, ends_with_the_file)
{
	add(0, 8);
	add(1, 8);
	expect_next(1001, 8, 1);
	expect_next(1001, 8, 1);
	cr_expect_eq(piece.file, 1);
}

Test(piece, ends_at_a_gap)
{
	add(0, 8);
	add(0, 8);
	source.tensors[1].offset++;
	expect_next(1001, 8, 1);
	expect_next(1010, 8, 1);
}

Test(piece, ends_at_a_page_of_the_file)
{
	add(0, 100000);
	source.tensors[0].offset = 4096 + 8;
	cr_assert(piece_next(&source, 16384, &cursor, &piece));
	cr_expect_eq(piece.offset + piece.bytes, 16384 + 4096);
	cr_assert(piece_next(&source, 16384, &cursor, &piece));
	cr_expect_eq(piece.bytes, 16384);
}

Test(piece, is_made_quickly_of_many_small_tensors)
{
	uint64_t bytes = 0;
	size_t pieces = 0;

	for (size_t i = 0; i < TENSORS_MAX; i++)
		add(0, 1 + i % 300);
	for (; piece_next(&source, 1 << 23, &cursor, &piece); pieces++)
		bytes += piece.bytes;
	cr_expect_eq(bytes, source.bytes);
	cr_expect_eq(pieces, (TENSORS_MAX + PIECE_SPANS_MAX - 1) / PIECE_SPANS_MAX);
}

/* Every byte of every tensor once and in order, whatever the sizes. */
static void expect_all_covered(size_t chunk)
{
	size_t tensor = 0;
	uint64_t offset = 0;

	cursor = (struct piece_cursor){0};
	while (piece_next(&source, chunk, &cursor, &piece)) {
		uint64_t at = piece.offset;

		cr_assert(piece.bytes > 0 && piece.bytes <= chunk && piece.span_count <= PIECE_SPANS_MAX);
		for (uint32_t i = 0; i < piece.span_count; i++) {
			const struct piece_span *span = &piece.spans[i];

			while (source.tensors[tensor].bytes == offset)
				tensor++, offset = 0;
			cr_assert_eq(span->tensor, tensor);
			cr_assert_eq(span->offset, offset);
			cr_assert_eq(offset % 8, 0);
			cr_assert_eq(source.tensors[tensor].offset + offset, at);
			cr_assert_eq(source.tensors[tensor].file, piece.file);
			at += span->bytes;
			offset += span->bytes;
			cr_assert_leq(offset, source.tensors[tensor].bytes);
		}
		cr_assert_eq(at, piece.offset + piece.bytes);
	}
	while (tensor < source.tensor_count && source.tensors[tensor].bytes == offset)
		tensor++, offset = 0;
	cr_assert_eq(tensor, source.tensor_count);
}

Test(piece, covers_random_sources)
{
	static const uint64_t sizes[] = {1, 9, 100, 5000, 70000};

	srandom(1);
	for (int round = 0; round < 300; round++) {
		source.tensor_count = 0;
		for (int i = 0; i < 50; i++)
			add((uint32_t)(i / 20), (uint64_t)random() % sizes[random() % 5]);
		expect_all_covered(8u << random() % 14);
		expect_all_covered(8u * (1 + (size_t)random() % 4000));
	}
}
