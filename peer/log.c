#include "log.h"

#include <stdarg.h>

void log_write(enum log_level level, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_line_write("gpuwm-peer", level, format, arguments);
	va_end(arguments);
}
