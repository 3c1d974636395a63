/* Safetensors files as a format: how they begin, and where their header lies. */
#include "format.h"

#include "source.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int safetensors_header_bytes(const uint8_t prefix[SAFETENSORS_PREFIX], uint64_t file_bytes, const char *file,
			     uint64_t *ret_bytes, struct error *error)
{
	uint64_t bytes = 0;

	for (int i = 0; i < SAFETENSORS_PREFIX; i++)
		bytes |= (uint64_t)prefix[i] << (8 * i);
	if (file_bytes < SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG, "is the download complete?",
				 "%s is truncated: it has %" PRIu64
				 " bytes, the header's length alone takes %d",
				 file, file_bytes, SAFETENSORS_PREFIX);
	if (bytes == 0)
		return error_set(error, -EBADMSG,
				 "the first 8 bytes are the header's length; is the download complete?",
				 "%s: the header length is 0", file);
	if (bytes > SAFETENSORS_HEADER_MAX)
		return error_set(error, -EBADMSG, "is this a safetensors file?",
				 "%s: the header length %" PRIu64 " is above the limit of %d", file, bytes,
				 SAFETENSORS_HEADER_MAX);
	if (bytes > file_bytes - SAFETENSORS_PREFIX)
		return error_set(error, -EBADMSG, "is the download complete?",
				 "%s is truncated: it has %" PRIu64 " bytes, its header alone needs %" PRIu64,
				 file, file_bytes, SAFETENSORS_PREFIX + bytes);
	*ret_bytes = bytes;
	return 0;
}

/* Whether this is a damaged safetensors file: it has a length below 1 TiB and a brace, or zeros that
 * a download has not filled yet. */
static bool begins_damaged(const struct format_head *head)
{
	static const uint8_t zeros[SAFETENSORS_PREFIX];

	return head->count > SAFETENSORS_PREFIX && memcmp(head->bytes + 5, zeros, 3) == 0 &&
	       (head->bytes[SAFETENSORS_PREFIX] == '{' || memcmp(head->bytes, zeros, 5) == 0);
}

/* It looks at the length first: a header of 640 bytes begins as a pickle does. */
static bool begins(const struct format_head *head)
{
	uint8_t first = head->count > SAFETENSORS_PREFIX ? head->bytes[SAFETENSORS_PREFIX] : 0;
	uint64_t bytes;

	if (first && strchr("{ \t\r\n", first) &&
	    safetensors_header_bytes(head->bytes, head->file_bytes, "", &bytes, &(struct error){0}) == 0)
		return true;
	return begins_damaged(head);
}

static int read_header(const struct source_file *file, uint64_t bytes, struct format_content *ret,
		       struct error *error)
{
	char *header = malloc(bytes);
	int r;

	if (!header)
		return error_set(error, -ENOMEM, NULL, "%s: no memory for a header of %" PRIu64 " bytes",
				 file->path, bytes);
	r = source_file_read_at(file, header, bytes, SAFETENSORS_PREFIX, error);
	if (r == 0)
		r = safetensors_parse(file->path, header, bytes, (uint64_t)file->stat.st_size, ret, error);
	free(header);
	return r;
}

static int read_file(const struct source_file *file, const struct format_head *head, struct format_content *ret,
		     struct error *error)
{
	uint64_t bytes;
	int r = safetensors_header_bytes(head->bytes, head->file_bytes, file->path, &bytes, error);

	if (r == 0)
		return read_header(file, bytes, ret, error);
	if (head->count > SAFETENSORS_PREFIX && !begins_damaged(head))
		return error_set(error, -ENOTSUP, FORMATS_SUPPORTED,
				 "%s is no safetensors file: no header begins at byte %d", file->path,
				 SAFETENSORS_PREFIX);
	return r;
}

const struct format format_safetensors = {
	.name = "safetensors",
	.file_end = ".safetensors",
	.index_end = ".safetensors.index.json",
	.begins = begins,
	.read = read_file,
};
