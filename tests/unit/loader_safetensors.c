#include "../../loader/files/format.h"

#include "../../proto/index/dtype.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct format_content content;
static struct error error;

/* A header with `data` bytes after it. */
static int parse(const char *header, uint64_t data)
{
	memset(&error, 0, sizeof(error));
	memset(&content, 0, sizeof(content));
	return safetensors_parse("f.safetensors", header, strlen(header), 8 + strlen(header) + data, &content,
				 &error);
}

static void accept(const char *header, uint64_t data)
{
	cr_assert_eq(parse(header, data), 0, "%s refused: %s", header, error.message);
}

/* Refused as damaged, with a message that names the file and holds `says`. */
static void refuse(const char *header, uint64_t data, const char *says)
{
	cr_assert_eq(parse(header, data), -EBADMSG, "%s accepted", header);
	cr_assert(strstr(error.message, "f.safetensors"), "%s", error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_assert_null(content.texts, "nothing is given on errors");
}

/* Refused, though the file is not damaged: the reference may take it. */
static void refuse_as_unsupported(const char *header, uint64_t data, const char *says)
{
	cr_assert_eq(parse(header, data), -ENOTSUP, "%s: %d", header, error.code);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_assert_null(content.texts, "nothing is given on errors");
}

/* The most memory that this process has had, counted anew: bytes. */
static uint64_t peak_bytes(void)
{
	char line[256];
	FILE *file = fopen("/proc/self/status", "re");
	unsigned long long kib = 0;

	while (kib == 0 && fgets(line, sizeof(line), file))
		sscanf(line, "VmHWM: %llu kB", &kib);
	fclose(file);
	return kib << 10;
}

static uint64_t peak_begin(void)
{
	FILE *file = fopen("/proc/self/clear_refs", "we");

	/* Without it the peak is that of the process so far. */
	if (file) {
		fputs("5", file);
		fclose(file);
	}
	return peak_bytes();
}

static int header_bytes(uint64_t length, uint64_t file, uint64_t *ret)
{
	uint8_t prefix[8];

	for (int i = 0; i < 8; i++)
		prefix[i] = (uint8_t)(length >> (8 * i));
	return safetensors_header_bytes(prefix, file, "f", ret, &error);
}

#define ONE(name, dtype, shape, offsets)                                                                       \
	"\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":" offsets "}"

Test(safetensors, takes_a_header_that_fills_the_file)
{
	uint64_t bytes = 0;

	cr_assert_eq(header_bytes(2, 10, &bytes), 0);
	cr_assert_eq(bytes, 2);
	cr_assert_eq(header_bytes(100000000, 100000008, &bytes), 0);
}

Test(safetensors, refuses_header_lengths_outside_the_rules)
{
	uint64_t bytes = 77;

	cr_assert_eq(header_bytes(0, 100, &bytes), -EBADMSG);
	cr_assert(strstr(error.message, "header length is 0"));
	cr_assert_eq(header_bytes(100000001, 200000000, &bytes), -EBADMSG);
	cr_assert(strstr(error.message, "100000000"), "%s", error.message);
	cr_assert_eq(header_bytes(3, 10, &bytes), -EBADMSG);
	cr_assert(strstr(error.message, "f is truncated: it has 10 bytes, its header alone needs 11"), "%s",
		  error.message);
	cr_assert_eq(header_bytes(UINT64_MAX, 10, &bytes), -EBADMSG);
	cr_assert_eq(header_bytes(1, 7, &bytes), -EBADMSG);
	cr_assert(strstr(error.message, "f is truncated: it has 7 bytes"), "%s", error.message);
	cr_assert_eq(bytes, 77, "set on success only");
}

Test(safetensors, tells_names_shapes_and_places)
{
	accept("{" ONE("b", "F32", "[2,3]", "[4,28]") "," ONE("a", "U8", "[4]", "[0,4]") "}", 28);
	cr_assert_eq(content.count, 2);
	cr_assert_str_eq(content.tensors[0].name, "a");
	cr_assert_str_eq(content.tensors[1].name, "b");
	cr_assert_eq(content.tensors[1].dtype, DTYPE_F32);
	cr_assert_eq(content.tensors[1].ndim, 2);
	cr_assert_eq(content.tensors[1].shape[1], 3);
	cr_assert_eq(content.tensors[1].bytes, 24);
	cr_assert_eq(content.tensors[1].offset - content.tensors[0].offset, 4);
	format_content_clear(&content);
	format_content_clear(&content);
}

Test(safetensors, takes_all_22_dtypes)
{
	int known = 0;

	for (unsigned dtype = 1; dtype < DTYPE_END; dtype++) {
		char header[128];
		uint64_t bytes;

		if (dtype_family(dtype) != DTYPE_SAFETENSORS)
			continue;
		known++;
		cr_assert_eq(dtype_bytes(dtype, 1, (uint64_t[]){8}, &bytes), 0);
		snprintf(header, sizeof(header),
			 "{\"t\":{\"dtype\":\"%s\",\"shape\":[8],\"data_offsets\":[0,%u]}}", dtype_name(dtype),
			 (unsigned)bytes);
		accept(header, bytes);
		cr_assert_eq(content.tensors[0].dtype, dtype);
		format_content_clear(&content);
	}
	cr_assert_eq(known, 22);
}

Test(safetensors, refuses_names_that_no_index_holds)
{
	static char header[TENSOR_NAME_BYTES_MAX + 100];

	refuse_as_unsupported("{" ONE("", "F32", "[1]", "[0,4]") "}", 4, "it has no name");
	snprintf(header, sizeof(header), "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		 TENSOR_NAME_BYTES_MAX + 1, 7);
	refuse_as_unsupported(header, 1, "its name is too long");
	snprintf(header, sizeof(header), "{\"%0*d\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
		 TENSOR_NAME_BYTES_MAX, 7);
	accept(header, 1);
	format_content_clear(&content);
}

Test(safetensors, refuses_unknown_dtypes)
{
	refuse_as_unsupported("{" ONE("t", "f32", "[1]", "[0,4]") "}", 4, "dtype \"f32\" is unknown");
	refuse_as_unsupported("{" ONE("t", "", "[1]", "[0,4]") "}", 4, "is unknown");
	refuse_as_unsupported("{" ONE("t", "Q8_0", "[32]", "[0,34]") "}", 34, "dtype \"Q8_0\" is unknown");
	refuse_as_unsupported("{" ONE("t", "F128", "[1]", "[0,16]") "}", 16, "tensor \"t\"");
	refuse_as_unsupported("{" ONE("t", "U8\\u0000", "[1]", "[0,1]") "}", 1, "tensor \"t\"");
	refuse("{\"t\":{\"dtype\":3,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is no text");
	refuse("{\"t\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, "dtype is missing");
}

Test(safetensors, takes_scalars_and_empty_tensors)
{
	accept("{" ONE("s", "F32", "[]", "[0,4]") "," ONE("z", "F32", "[0,5]",
							  "[4,4]") "," ONE("y", "F64", "[3,0]", "[0,0]") "}",
	       4);
	cr_assert_eq(content.count, 3);
	format_content_clear(&content);
}

Test(safetensors, takes_a_file_without_tensors)
{
	accept("{}", 0);
	cr_assert_eq(content.count, 0);
	format_content_clear(&content);
	accept("{\"__metadata__\":{}}", 0);
	format_content_clear(&content);
	refuse("{}", 1, "the tensors end at byte 0 of the data, the file at 1");
}

Test(safetensors, takes_whitespace_around_the_header)
{
	accept(" \n\t{" ONE("t", "U8", "[1]", "[0,1]") "} \r\n   ", 1);
	format_content_clear(&content);
}

Test(safetensors, refuses_anything_else_after_the_header)
{
	refuse("{} x", 0, "not valid");
	refuse("{}{}", 0, "not valid");
	refuse("{},", 0, "not valid");
}

Test(safetensors, refuses_what_is_no_json_object)
{
	refuse("[]", 0, "no JSON object");
	refuse("{\"a\":", 0, "not valid JSON at byte 5: it ends too early");
	refuse("nonsense", 0, "not valid");
	refuse("{'a':1}", 0, "not valid");
	refuse("   ", 0, "not valid");
}

Test(safetensors, refuses_nested_junk)
{
	char deep[8192];

	memset(deep, '[', sizeof(deep) - 1);
	deep[sizeof(deep) - 1] = '\0';
	memcpy(deep, "{\"t\":{\"x\":", 10);
	refuse(deep, 0, "not valid JSON at byte 135: it is nested more than 127 deep");
	refuse("{\"t\":[{}]}", 0, "its entry is no object");
	refuse("{\"t\":7}", 0, "its entry is no object");
	refuse("{\"t\":{}}", 0, "dtype is missing");
}

Test(safetensors, refuses_bytes_that_are_not_utf8)
{
	refuse("{" ONE("\xff\xfe", "U8", "[1]", "[0,1]") "}", 1, "not valid");
	refuse("{" ONE("\xc3", "U8", "[1]", "[0,1]") "}", 1, "not valid");
	accept("{" ONE("\xc3\xa4", "U8", "[1]", "[0,1]") "}", 1);
	format_content_clear(&content);
}

Test(safetensors, refuses_names_with_zero_bytes)
{
	refuse_as_unsupported("{" ONE("a\\u0000b", "U8", "[1]", "[0,1]") "}", 1, "a zero byte is in its name");
	refuse_as_unsupported("{\"__metadata__\":{\"a\\u0000\":\"b\"}}", 0, "a zero byte");
	refuse_as_unsupported("{\"__metadata__\":{\"a\":\"\\u0000\"}}", 0, "a zero byte");
	refuse_as_unsupported("{\"__metadata__\\u0000\":{}}", 0, "a zero byte is in its name");
}

Test(safetensors, refuses_duplicate_keys)
{
	refuse("{" ONE("t", "U8", "[1]", "[0,1]") "," ONE("t", "U8", "[1]", "[1,2]") "}", 2, "duplicate");
	refuse("{\"t\":{\"dtype\":\"U8\",\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1,
	       "duplicate");
	refuse("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0, "duplicate");
}

Test(safetensors, reads_metadata)
{
	accept("{\"__metadata__\":{\"format\":\"pt\",\"empty\":\"\"}}", 0);
	cr_assert_eq(content.metadata_count, 2);
	cr_assert_str_eq(content.metadata[0].key, "format");
	cr_assert_str_eq(content.metadata[0].value, "pt");
	format_content_clear(&content);
	accept("{\"__metadata__\":null}", 0);
	format_content_clear(&content);
}

Test(safetensors, refuses_metadata_that_maps_no_texts)
{
	refuse("{\"__metadata__\":[]}", 0, "__metadata__ is no object");
	refuse("{\"__metadata__\":{\"a\":1}}", 0, "__metadata__: \"a\" is no text");
	refuse("{\"__metadata__\":{\"a\":{}}}", 0, "is no text");
}

Test(safetensors, ignores_unknown_fields)
{
	accept("{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":{\"x\":[1.5,null]}}}",
	       1);
	format_content_clear(&content);
}

Test(safetensors, refuses_shapes_that_are_none)
{
	refuse("{" ONE("t", "U8", "7", "[0,1]") "}", 1, "shape is no array");
	refuse("{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "shape is missing");
	refuse("{" ONE("t", "U8", "[-1]", "[0,1]") "}", 1, "shape holds -1, which is no non-negative integer");
	refuse("{" ONE("t", "U8", "[1.0]", "[0,1]") "}", 1, "shape holds");
	refuse("{" ONE("t", "U8", "[\"1\"]", "[0,1]") "}", 1, "shape holds");
	refuse("{" ONE("t", "U8", "[-0]", "[0,0]") "}", 0, "shape holds -0");
}

Test(safetensors, limits_dimensions)
{
	char header[512] = "{\"t\":{\"dtype\":\"U8\",\"data_offsets\":[0,1],\"shape\":[1";
	char one_more[600];

	for (int i = 1; i < TENSOR_DIMS_MAX; i++)
		strcat(header, ",1");
	snprintf(one_more, sizeof(one_more), "%s,1]}}", header);
	strcat(header, "]}}");
	accept(header, 1);
	format_content_clear(&content);
	refuse_as_unsupported(one_more, 1, "65 dimensions, above the limit of 64");
}

Test(safetensors, refuses_offsets_that_are_none)
{
	refuse("{" ONE("t", "U8", "[1]", "[0]") "}", 1, "data_offsets is no array of two");
	refuse("{" ONE("t", "U8", "[1]", "[0,1,2]") "}", 1, "no array of two");
	refuse("{\"t\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, "data_offsets is missing");
	refuse("{" ONE("t", "U8", "[1]", "[-1,0]") "}", 1, "data_offsets holds");
	refuse("{" ONE("t", "U8", "[1]", "[1,0]") "}", 1, "end before they begin");
	refuse("{" ONE("t", "U8", "[1]", "[9223372036854775806,9223372036854775807]") "}", 1, "leaves a gap");
}

Test(safetensors, names_the_tensor_of_an_integer_that_is_too_big)
{
	refuse("{" ONE("t", "U8", "[18446744073709551616]", "[0,1]") "}", 1,
	       "tensor \"t\": shape holds 18446744073709551616, above the limit of 9223372036854775807");
	refuse("{" ONE("t", "U8", "[9223372036854775808]", "[0,1]") "}", 1, "tensor \"t\": shape holds");
	refuse("{" ONE("t", "U8", "[1]", "[0,99999999999999999999999999999999999999999999999]") "}", 1,
	       "tensor \"t\": data_offsets holds 9999999999999999999999999999999999999999, above");
}

Test(safetensors, says_both_sizes_of_a_truncated_file)
{
	const char *header = "{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[6]", "[2,8]") "}";
	char says[128];

	snprintf(says, sizeof(says), "f.safetensors is truncated: it has %zu bytes, its tensors need %zu",
		 8 + strlen(header) + 5, 8 + strlen(header) + 8);
	refuse(header, 5, says);
	refuse(header, 7, "is truncated");
	accept(header, 8);
	format_content_clear(&content);
}

#define ZEROS_8 "0,0,0,0,0,0,0,0,"
#define ZEROS ZEROS_8 ZEROS_8 ZEROS_8 ZEROS_8 ZEROS_8 ZEROS_8 ZEROS_8 "0,0,0,0,0,0,0,0"

/* The most that a header can say in few bytes, in each part of it. */
Test(safetensors, takes_little_memory_whatever_the_header_says)
{
	static const struct {
		const char *begin, *part, *end;
	} cases[] = {
		{"{\"a\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0],\"x\":[", "{},", "{}]}}"},
		{"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,0],\"shape\":[", "0,", "0]}}"},
		{"{\"__metadata__\":{", "\"\":\"\",", "\"\":\"\"}}"},
		{"{", ONE("a", "F4", "[0]", "[0,0]") ",", ONE("b", "F4", "[0]", "[0,0]") "}"},
		{"{", ONE("a", "F4", "[" ZEROS "]", "[0,0]") ",", ONE("b", "F4", "[0]", "[0,0]") "}"},
		{"{\"", "a", "\":1}"},
	};
	const size_t bytes = 20 << 20;
	char *header = malloc(bytes);

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		size_t at = strlen(cases[i].begin), part = strlen(cases[i].part), end = strlen(cases[i].end);
		uint64_t before;

		memcpy(header, cases[i].begin, at);
		for (; at + part + end <= bytes; at += part)
			memcpy(header + at, cases[i].part, part);
		memcpy(header + at, cases[i].end, end);
		before = peak_begin();
		safetensors_parse("f", header, at + end, 8 + at + end, &content, &error);
		cr_expect_leq(peak_bytes() - before, (HEADER_MEMORY_FACTOR - 1) * bytes, "case %zu", i);
		format_content_clear(&content);
		memset(&content, 0, sizeof(content));
	}
	free(header);
}

Test(safetensors, refuses_sizes_that_differ_from_the_span)
{
	refuse("{" ONE("t", "F32", "[2]", "[0,7]") "}", 7, "make 8 bytes, data_offsets span 7");
	refuse("{" ONE("t", "F32", "[]", "[0,0]") "}", 0, "make 4 bytes, data_offsets span 0");
	refuse("{" ONE("t", "F32", "[0]", "[0,4]") "}", 4, "make 0 bytes, data_offsets span 4");
}

Test(safetensors, refuses_shapes_that_overflow)
{
	refuse("{" ONE("t", "F32", "[4294967296,4294967296]", "[0,0]") "}", 0, "overflows 64 bits");
	refuse("{" ONE("t", "F64", "[4611686018427387904]", "[0,0]") "}", 0, "overflows 64 bits");
	refuse("{" ONE("t", "U8", "[4294967296,4294967296,0]", "[0,0]") "}", 0, "overflows 64 bits");
	accept("{" ONE("t", "U8", "[0,4294967296,4294967296]", "[0,0]") "}", 0);
	format_content_clear(&content);
}

Test(safetensors, refuses_parts_of_bytes)
{
	refuse("{" ONE("t", "F4", "[3]", "[0,2]") "}", 2, "no whole number of bytes");
	refuse("{" ONE("t", "F6_E2M3", "[2]", "[0,2]") "}", 2, "no whole number of bytes");
	accept("{" ONE("t", "F4", "[4]", "[0,2]") "," ONE("u", "F6_E3M2", "[4]", "[2,5]") "}", 5);
	format_content_clear(&content);
}

Test(safetensors, refuses_gaps)
{
	refuse("{" ONE("t", "U8", "[1]", "[1,2]") "}", 2,
	       "tensor \"t\": leaves a gap before it: begins at byte 1");
	refuse("{" ONE("a", "U8", "[1]", "[0,1]") "," ONE("b", "U8", "[1]", "[2,3]") "}", 3,
	       "tensor \"b\": leaves a gap before it");
	refuse("{" ONE("a", "U8", "[1]", "[0,1]") "," ONE("z", "U8", "[0]", "[3,3]") "}", 3, "tensor \"z\"");
}

Test(safetensors, refuses_overlaps)
{
	refuse("{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[2]", "[1,3]") "}", 3,
	       "tensor \"b\": overlaps the tensor before it: begins at byte 1 of the data, expected 2");
	refuse("{" ONE("a", "U8", "[2]", "[0,2]") "," ONE("b", "U8", "[2]", "[0,2]") "}", 2, "overlaps");
	refuse("{" ONE("a", "U8", "[4]", "[0,4]") "," ONE("z", "U8", "[0]", "[2,2]") "}", 4, "overlaps");
}

Test(safetensors, refuses_a_file_that_goes_on)
{
	refuse("{" ONE("a", "U8", "[2]", "[0,2]") "}", 3,
	       "the tensors end at byte 2 of the data, the file at 3");
}

Test(safetensors, cuts_long_names_at_a_character)
{
	char header[2048] = "{\"";

	for (int i = 0; i < 300; i++)
		strcat(header, i ? "\xc3\xa4" : "a");
	strcat(header, "\":{}}");
	refuse(header, 0, "\xc3\xa4\": dtype is missing");
	cr_assert(strlen(error.message) < 300);
}

Test(safetensors, survives_every_allocation_that_fails)
{
	const char *header = "{\"__metadata__\":{\"a\":\"b\"}," ONE("t", "U8", "[1]", "[0,1]") "}";
	unsigned n = 1;

	for (;; n++) {
		int r;

		fail_alloc_arm(n);
		r = parse(header, 1);
		if (!fail_alloc_disarm())
			break;
		cr_assert_eq(r, -ENOMEM, "allocation %u: %d", n, r);
		cr_assert(strstr(error.message, "f.safetensors: no memory for"), "%s", error.message);
		cr_assert_null(content.texts);
	}
	cr_assert_eq(content.count, 1);
	cr_assert_gt(n, 4, "tensors, shapes, texts, metadata");
	format_content_clear(&content);
}
