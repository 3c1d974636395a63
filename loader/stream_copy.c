#include "stream_copy.h"

#include <stdint.h>
#include <string.h>

#ifdef __SSE2__

#include <emmintrin.h>

#define LINE_BYTES 64 /* of a cache: what is written of it in parts is read first after all */

static void stream_line(char *to, const char *from)
{
	const __m128i *words = (const __m128i *)from;

	for (int i = 0; i < LINE_BYTES / (int)sizeof(*words); i++)
		_mm_stream_si128((__m128i *)to + i, _mm_loadu_si128(words + i));
}

void stream_copy(void *to, const void *from, size_t bytes)
{
	const char *source = from;
	char *target = to;
	size_t head = -(uintptr_t)target % LINE_BYTES;

	if (head > bytes)
		head = bytes;
	memcpy(target, source, head);
	for (bytes -= head, target += head, source += head; bytes >= LINE_BYTES; bytes -= LINE_BYTES) {
		stream_line(target, source);
		target += LINE_BYTES;
		source += LINE_BYTES;
	}
	memcpy(target, source, bytes);
	_mm_sfence(); /* such stores keep no order with those that tell others of the bytes */
}

#else

void stream_copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

#endif
