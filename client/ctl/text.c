#include "text.h"

#include <stdio.h>
#include <time.h>

const char *size_text(uint64_t bytes, char ret_text[SHORT_TEXT])
{
	static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
	double value = (double)bytes / 1024;
	size_t unit = 0;

	if (bytes < 1024) {
		snprintf(ret_text, SHORT_TEXT, "%u B", (unsigned)bytes);
		return ret_text;
	}
	/* 1023.95 would be printed as 1024.0. */
	while (value >= 1023.95 && unit < 5) {
		value /= 1024;
		unit++;
	}
	snprintf(ret_text, SHORT_TEXT, "%.1f %s", value, units[unit]);
	return ret_text;
}

const char *age_text(uint64_t then_ms, char ret_text[SHORT_TEXT])
{
	struct timespec now;
	uint64_t now_ms, seconds;

	ret_text[0] = '\0';
	if (then_ms == 0)
		return ret_text;
	clock_gettime(CLOCK_REALTIME, &now);
	now_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
	seconds = now_ms > then_ms ? (now_ms - then_ms) / 1000 : 0;
	if (seconds < 120)
		snprintf(ret_text, SHORT_TEXT, "%us", (unsigned)seconds);
	else if (seconds < 7200)
		snprintf(ret_text, SHORT_TEXT, "%um", (unsigned)(seconds / 60));
	else if (seconds < 172800)
		snprintf(ret_text, SHORT_TEXT, "%uh", (unsigned)(seconds / 3600));
	else
		snprintf(ret_text, SHORT_TEXT, "%ud", (unsigned)(seconds / 86400));
	return ret_text;
}

const char *time_text(uint64_t ms, char ret_text[SHORT_TEXT])
{
	if (ms < 1000)
		snprintf(ret_text, SHORT_TEXT, "%u ms", (unsigned)ms);
	else if (ms < 120000)
		snprintf(ret_text, SHORT_TEXT, "%.2f s", (double)ms / 1000);
	else
		snprintf(ret_text, SHORT_TEXT, "%llu:%02llu min", (unsigned long long)(ms / 60000),
			 (unsigned long long)(ms / 1000 % 60));
	return ret_text;
}

const char *rate_text(uint64_t bytes, uint64_t ms, char ret_text[SHORT_TEXT])
{
	char size[SHORT_TEXT];

	ret_text[0] = '\0';
	if (bytes > 0 && ms > 0)
		snprintf(ret_text, SHORT_TEXT, "%.20s/s",
			 size_text((uint64_t)((double)bytes * 1000 / (double)ms), size));
	return ret_text;
}

const char *hex_text(const uint8_t *bytes, size_t count, char *ret_text)
{
	ret_text[0] = '\0';
	for (size_t i = 0; i < count; i++)
		snprintf(ret_text + 2 * i, 3, "%02x", bytes[i]);
	return ret_text;
}
