#include "log.h"

#include <stdarg.h>

#define LIMIT_MS 10000

void log_write(enum log_level level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_line_write("gpuwm-keeper", level, format, arguments);
	va_end(arguments);
}

int log_allowed(struct log_limit *limit, uint64_t now_ms, unsigned *ret_left_out)
{
	if (now_ms < limit->next_ms) {
		limit->left_out++;
		return false;
	}
	*ret_left_out = limit->left_out;
	*limit = (struct log_limit){.next_ms = now_ms + LIMIT_MS};
	return true;
}
