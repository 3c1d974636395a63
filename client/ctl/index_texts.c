#include "index_texts.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#define HEADER_BYTES 88
#define SEGMENT_BYTES 8
#define TENSOR_BYTES 64
#define ENTRY_BYTES 24 /* of metadata and of files */

static uint32_t read_u32(const uint8_t *at)
{
	uint32_t value;

	memcpy(&value, at, sizeof(value));
	return le32toh(value);
}

static uint64_t read_u64(const uint8_t *at)
{
	uint64_t value;

	memcpy(&value, at, sizeof(value));
	return le64toh(value);
}

/* Counts are 32 bits wide: the sums can't overflow 64. */
static bool header_read(struct index_texts *texts)
{
	const uint8_t *data = texts->data;

	if (memcmp(data, "GPUWMIX1", 8) != 0)
		return false;
	texts->metadata_count = read_u32(data + 32);
	texts->file_count = read_u32(data + 36);
	texts->heap = read_u64(data + 48);
	texts->metadata = HEADER_BYTES + SEGMENT_BYTES * (uint64_t)read_u32(data + 24) +
			  TENSOR_BYTES * (uint64_t)read_u32(data + 28);
	texts->files = texts->metadata + ENTRY_BYTES * (uint64_t)texts->metadata_count;
	return texts->heap <= texts->bytes &&
	       texts->files + ENTRY_BYTES * (uint64_t)texts->file_count <= texts->heap;
}

int index_texts_open(int fd, uint64_t bytes, struct index_texts *ret_texts)
{
	struct index_texts texts = {.bytes = bytes};
	void *data;

	if (bytes < HEADER_BYTES)
		return -EBADMSG;
	data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return -errno;
	texts.data = data;
	if (!header_read(&texts)) {
		index_texts_close(&texts);
		return -EBADMSG;
	}
	*ret_texts = texts;
	return 0;
}

void index_texts_close(struct index_texts *texts)
{
	munmap((void *)texts->data, texts->bytes);
}

/* A text of the heap with its zero byte; NULL when it is not there. */
static const char *heap_text(const struct index_texts *texts, uint64_t offset, uint32_t length)
{
	uint64_t heap_bytes = texts->bytes - texts->heap;
	const char *text;

	if (length >= heap_bytes || offset > heap_bytes - length - 1)
		return NULL;
	text = (const char *)texts->data + texts->heap + offset;
	return text[length] == '\0' ? text : NULL;
}

int index_texts_metadata(const struct index_texts *texts, uint32_t position, const char **ret_key,
			 const char **ret_value)
{
	const uint8_t *entry = texts->data + texts->metadata + ENTRY_BYTES * (uint64_t)position;
	const char *key = heap_text(texts, read_u64(entry), read_u32(entry + 16));
	const char *value = heap_text(texts, read_u64(entry + 8), read_u32(entry + 20));

	if (!key || !value)
		return -EBADMSG;
	*ret_key = key;
	*ret_value = value;
	return 0;
}

int index_texts_file(const struct index_texts *texts, uint32_t position, const char **ret_name,
		     uint32_t *ret_bytes)
{
	const uint8_t *entry = texts->data + texts->files + ENTRY_BYTES * (uint64_t)position;
	const char *name = heap_text(texts, read_u64(entry), read_u32(entry + 16));

	if (!name)
		return -EBADMSG;
	*ret_name = name;
	*ret_bytes = read_u32(entry + 20);
	return 0;
}
