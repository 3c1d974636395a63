#include "log.h"

#include "../base/utf8.h"
#include "../service/log_line.h"

#include <stdarg.h>
#include <stdio.h>

#define LINE_BYTES 4096

void loader_log(const char *format, ...)
{
	char text[LINE_BYTES], shown[UTF8_SHOWN_MAX(LINE_BYTES)], time[LOG_TIME_BYTES] = "";
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(text, sizeof(text), format, arguments);
	va_end(arguments);
	utf8_show(text, shown, sizeof(shown));
	if (!log_is_journal())
		log_time(time);
	fprintf(stderr, "%s%sgpuwm-loader: %s\n", time, time[0] ? " " : "", shown);
}
