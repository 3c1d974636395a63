/* Mutates headers that are valid and parses them: fuzz_safetensors [iterations [seed]].
 * Build it with the sanitizers. What is accepted must keep the rules. */
#include "../../loader/files/format.h"

#include "../../proto/index/dtype.h"
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const seeds[] = {
	"{}",
	"{\"__metadata__\":{\"format\":\"pt\",\"a\":\"\\u00e4\"}}",
	"{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}",
	"{\"a\":{\"dtype\":\"F4\",\"shape\":[8],\"data_offsets\":[0,4]},\"b\":{\"dtype\":\"U8\",\"shape\":[0],"
	"\"data_offsets\":[4,4]},\"c\":{\"dtype\":\"BF16\",\"shape\":[],\"data_offsets\":[4,6]}}",
	"  {\"x\":{\"dtype\":\"I64\",\"shape\":[1,1,1,1],\"data_offsets\":[0,8],\"more\":[{\"y\":null}]}}  ",
};
static const char *const words[] = {
	"\"dtype\"",
	"\"shape\"",
	"\"data_offsets\"",
	"\"__metadata__\"",
	"[",
	"]",
	"{",
	"}",
	",",
	":",
	"-1",
	"18446744073709551615",
	"9223372036854775807",
	"4294967296",
	"0",
	"1.5",
	"\"\\u0000\"",
	"\"\\ud800\"",
	"null",
	"\xff",
	"1e999",
	"-0",
	"\"\\ud83d\\ude00\"",
	"\\u0041",
};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static size_t mutate(char *text, size_t bytes, size_t room)
{
	const char *word = words[draw(COUNT(words))];
	size_t at = draw(bytes + 1), length;

	switch (draw(5)) {
	case 0:
		if (at < bytes)
			text[at] = (char)draw(256);
		return bytes;
	case 1:
		length = bytes - at < 8 ? bytes - at : draw(8);
		memmove(text + at, text + at + length, bytes - at - length);
		return bytes - length;
	case 2:
		return at;
	default:
		length = strlen(word);
		if (bytes + length > room)
			return bytes;
		memmove(text + at + length, text + at, bytes - at);
		memcpy(text + at, word, length);
		return bytes + length;
	}
}

static void check_accepted(const struct format_content *content, size_t header, uint64_t file)
{
	uint64_t at = 8 + header, bytes;

	for (size_t i = 0; i < content->count; i++) {
		const struct format_tensor *tensor = &content->tensors[i];

		must(tensor->offset == at, "no gap, no overlap");
		must(dtype_bytes(tensor->dtype, tensor->ndim, tensor->shape, &bytes) == 0, "shape");
		must(bytes == tensor->bytes, "shape and span agree");
		at += tensor->bytes;
	}
	must(at == file, "the tensors fill the file");
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 100000), accepted = 0;
	char text[4096];

	for (uint64_t i = 0; i < iterations; i++) {
		const char *seed = seeds[draw(COUNT(seeds))];
		size_t bytes = strlen(seed);
		uint64_t data[] = {0, 4, 6, 8, 24, draw(64)};
		struct format_content content;
		struct error error;
		char *exact;

		memcpy(text, seed, bytes);
		for (uint64_t rounds = draw(4); rounds > 0; rounds--)
			bytes = mutate(text, bytes, sizeof(text));
		/* In memory of exactly its size, so that a sanitizer sees each byte too far. */
		exact = malloc(bytes + !bytes);
		memcpy(exact, text, bytes);
		uint64_t file = 8 + bytes + data[draw(COUNT(data))];
		if (safetensors_parse("fuzz", exact, bytes, file, &content, &error) == 0) {
			check_accepted(&content, bytes, file);
			format_content_clear(&content);
			accepted++;
		}
		free(exact);
	}
	return fuzz_end(accepted, iterations);
}
