#include "bytes.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

const char *bytes_format(uint64_t bytes, char text[BYTES_TEXT])
{
	static const char units[] = "KMGTPE";
	size_t unit = 0;
	double value = (double)bytes / 1024;

	if (bytes < 1024) {
		snprintf(text, BYTES_TEXT, "%u B", (unsigned)bytes);
		return text;
	}
	/* The format would round 1023.95 to 1024.0. */
	for (; value >= 1023.95 && unit + 2 < sizeof(units); value /= 1024)
		unit++;
	snprintf(text, BYTES_TEXT, "%.1f %ciB", value, units[unit]);
	return text;
}

int bytes_parse(const char *text, uint64_t *ret_bytes)
{
	static const char suffixes[] = "KMGT";
	const char *at = text;
	unsigned shift = 0;
	uint64_t value = 0;

	for (; *at >= '0' && *at <= '9'; at++) {
		if (__builtin_mul_overflow(value, 10, &value) ||
		    __builtin_add_overflow(value, (uint64_t)(*at - '0'), &value))
			return -ERANGE;
	}
	if (at == text)
		return -EINVAL;
	if (*at != '\0') {
		const char *suffix = strchr(suffixes, *at++);
		if (!suffix || *at != '\0')
			return -EINVAL;
		shift = 10 * (unsigned)(suffix - suffixes + 1);
	}
	if (value > UINT64_MAX >> shift)
		return -ERANGE;
	*ret_bytes = value << shift;
	return 0;
}
