#include "safetensors.h"

#include <errno.h>
#include <inttypes.h>

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
