/* Says of files whether gpuwm takes them as safetensors, for tests/fuzz/safetensors_reference.py, which asks the reference
 * as well.
 *
 * stdin has batches: how many files, then of each its length and its bytes (both numbers have 4 bytes, little-endian).
 * stdout gets one byte for each file, after each batch: '+': taken; '-': refused as damaged; 'x': refused as beyond what gpuwm
 * supports. */
#include "../../loader/files/format.h"

#include "fuzz.h"

#include <string.h>

#define FILE_BYTES_MAX (1u << 24)

static bool read_number(uint32_t *ret)
{
	unsigned char bytes[4];

	if (fread(bytes, 1, sizeof(bytes), stdin) != sizeof(bytes))
		return false;
	*ret = bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
	return true;
}

/* The header in memory of exactly its size, so that a sanitizer sees each byte too far. */
static int judge_header(const uint8_t *file, uint32_t bytes, uint64_t header_bytes)
{
	struct format_content content;
	void *header = malloc(header_bytes);
	int r;

	must(header, "memory for a header");
	memcpy(header, file + SAFETENSORS_PREFIX, header_bytes);
	r = safetensors_parse("file", header, header_bytes, bytes, &content, &(struct error){0});
	if (r == 0)
		format_content_clear(&content);
	free(header);
	return r;
}

static int judge(const uint8_t *file, uint32_t bytes)
{
	uint8_t prefix[SAFETENSORS_PREFIX] = {0};
	uint64_t header_bytes;
	int r;

	memcpy(prefix, file, bytes < sizeof(prefix) ? bytes : sizeof(prefix));
	r = safetensors_header_bytes(prefix, bytes, "file", &header_bytes, &(struct error){0});
	return r < 0 ? r : judge_header(file, bytes, header_bytes);
}

static int judge_next(void)
{
	uint32_t bytes;
	uint8_t *file;
	int r;

	must(read_number(&bytes) && bytes < FILE_BYTES_MAX, "the length of a file");
	file = malloc(bytes + 1);
	must(file && fread(file, 1, bytes, stdin) == bytes, "a file");
	r = judge(file, bytes);
	free(file);
	return r;
}

int main(void)
{
	uint32_t count;

	while (read_number(&count)) {
		while (count-- > 0) {
			int r = judge_next();

			must(r == 0 || r == -EBADMSG || r == -ENOTSUP, "a verdict");
			putchar(r == 0 ? '+' : r == -EBADMSG ? '-' : 'x');
		}
		fflush(stdout);
	}
	return 0;
}
