/* The SHA-256 tree of a version. What the sums must be was computed by Python's hashlib. */
#include "peer/sums.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

static uint8_t *data; /* each byte is (place * 31 + place / 65536) mod 256 */
static struct error error;

#define BYTES (SUMS_PIECE_BYTES + SUMS_LEAF_BYTES + 5)

static void begin(void)
{
	data = malloc(BYTES);
	for (size_t i = 0; i < BYTES; i++)
		data[i] = (uint8_t)(i * 31 + i / 65536);
}

static void end(void)
{
	free(data);
}

TestSuite(sums, .init = begin, .fini = end);

static void expect_sum(const struct sum *sum, const char *hex)
{
	char text[SUM_TEXT];

	sum_format(sum, text);
	cr_expect_str_eq(text, hex);
}

Test(sums, of_an_index_is_plain)
{
	struct sum sum;

	cr_assert_eq(sums_plain("abc", 3, &sum), 0);
	expect_sum(&sum, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

Test(sums, of_a_piece_is_over_its_leaves)
{
	struct sum sum;

	cr_assert_eq(sums_piece(data, SUMS_PIECE_BYTES, &sum), 0);
	expect_sum(&sum, "714774d8ce21c6bc7954d34091f9c32ab31c12c65f43c0acffd7c4dc30f3580e");
	cr_assert_eq(sums_piece(data + SUMS_PIECE_BYTES, SUMS_LEAF_BYTES + 5, &sum), 0);
	expect_sum(&sum, "21727c8bbac3de23b5bc5571c1032b28dc3bcd0b48973aa60344a00c6e722030");
}

Test(sums, of_a_version_is_over_parts_over_segments_over_pieces)
{
	struct sum pieces[2], index, segments[2], part, version;

	cr_assert_eq(sums_piece(data, SUMS_PIECE_BYTES, &pieces[0]), 0);
	cr_assert_eq(sums_piece(data + SUMS_PIECE_BYTES, SUMS_LEAF_BYTES + 5, &pieces[1]), 0);
	cr_assert_eq(sums_plain("abc", 3, &index), 0);
	cr_assert_eq(sums_segment(pieces, 2, &segments[0]), 0);
	cr_assert_eq(sums_segment(pieces, 1, &segments[1]), 0);
	cr_assert_eq(sums_part(&index, segments, 2, &part), 0);
	cr_assert_eq(sums_fingerprint(&part, 1, &version), 0);
	expect_sum(&version, "b0d16abcd216cf98b0781003f20cddb969c1f016610c398243f6aed46086c148");
}

Test(sums, count_pieces)
{
	cr_expect_eq(sums_piece_count(0), 0);
	cr_expect_eq(sums_piece_count(1), 1);
	cr_expect_eq(sums_piece_count(SUMS_PIECE_BYTES), 1);
	cr_expect_eq(sums_piece_count(SUMS_PIECE_BYTES + 1), 2);
	cr_expect_eq(sums_piece_bytes(SUMS_PIECE_BYTES + 1, 0), SUMS_PIECE_BYTES);
	cr_expect_eq(sums_piece_bytes(SUMS_PIECE_BYTES + 1, 1), 1);
}

Test(sums, are_the_same_with_any_number_of_threads)
{
	const struct memory_span all = {data, BYTES};
	struct memory_device host;
	struct sum one[2], many[2];

	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	cr_assert_eq(sums_memory(&host, &all, &(struct sums_options){.threads = 1}, one, &error), 0, "%s",
		     error.message);
	cr_assert_eq(sums_memory(&host, &all, &(struct sums_options){.threads = 8}, many, &error), 0, "%s",
		     error.message);
	cr_expect_arr_eq(one, many, sizeof(one));
	expect_sum(&one[0], "714774d8ce21c6bc7954d34091f9c32ab31c12c65f43c0acffd7c4dc30f3580e");
	expect_sum(&one[1], "21727c8bbac3de23b5bc5571c1032b28dc3bcd0b48973aa60344a00c6e722030");
}

static uint64_t told;

static int count(uint64_t bytes, void *user_data)
{
	told += bytes;
	return user_data ? 1 : 0;
}

Test(sums, tell_every_byte_once)
{
	const struct memory_span all = {data, BYTES};
	struct memory_device host;
	struct sum sums[2];

	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	cr_expect_eq(sums_memory(&host, &all, &(struct sums_options){2, count, NULL}, sums, &error), 0);
	cr_expect_eq(told, BYTES);
}

Test(sums, end_when_they_are_not_wanted_any_more)
{
	const struct memory_span all = {data, BYTES};
	struct memory_device host;
	struct sum sums[2];

	cr_assert_eq(memory_device_open("host", &host, &error), 0);
	cr_expect_eq(sums_memory(&host, &all, &(struct sums_options){1, count, &told}, sums, &error),
		     -ECANCELED);
}

Test(sums, are_read_and_written_as_hexadecimal_digits)
{
	const char *text = "00ff7f80a5000000000000000000000000000000000000000000000000000abc";
	char upper[SUM_TEXT], written[SUM_TEXT];
	struct sum sum, same;

	cr_assert_eq(sum_parse(text, &sum), 0);
	sum_format(&sum, written);
	cr_expect_str_eq(written, text);
	memcpy(upper, text, sizeof(upper));
	upper[2] = 'F';
	cr_assert_eq(sum_parse(upper, &same), 0);
	cr_expect(sum_equal(&sum, &same));
	upper[2] = 'g';
	cr_expect_eq(sum_parse(upper, &same), -EINVAL);
	cr_expect_eq(sum_parse("00ff", &same), -EINVAL);
	cr_expect_eq(sum_parse("00ff7f80a5000000000000000000000000000000000000000000000000000abc0", &same),
		     -EINVAL);
}
