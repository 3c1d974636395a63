/* Every byte of a copy past the caches arrives, and none beside it is touched. */
#include "../../loader/stream_copy.h"

#include <criterion/criterion.h>
#include <string.h>

#define MOST 320 /* several lines of a cache, and a part of one at both ends */
#define BESIDE 64

static unsigned char from[MOST + BESIDE], to[MOST + 2 * BESIDE];

static void copy_and_compare(size_t source, size_t target, size_t bytes)
{
	memset(to, 0xee, sizeof(to));
	stream_copy(to + target, from + source, bytes);
	cr_assert_arr_eq(to + target, from + source, bytes, "%zu bytes from %zu to %zu", bytes, source, target);
	for (size_t i = 0; i < sizeof(to); i++)
		if (i < target || i >= target + bytes)
			cr_assert_eq(to[i], 0xee, "%zu bytes to %zu: byte %zu was written", bytes, target, i);
}

Test(stream_copy, from_and_to_everywhere)
{
	for (size_t i = 0; i < sizeof(from); i++)
		from[i] = (unsigned char)(i * 7 + i / 256);
	for (size_t source = 0; source < BESIDE; source += 5)
		for (size_t target = 0; target < BESIDE; target++)
			for (size_t bytes = 0; bytes <= MOST; bytes += bytes < 70 ? 1 : 25)
				copy_and_compare(source, target, bytes);
}
