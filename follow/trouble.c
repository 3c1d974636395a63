#include "trouble.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static void log_note(struct trouble *trouble, enum log_level level, const char *format, va_list arguments)
{
	char text[sizeof(trouble->text)];

	vsnprintf(text, sizeof(text), format, arguments);
	if (strcmp(trouble->text, text) == 0)
		return;
	strcpy(trouble->text, text);
	log_write(level, "%s", text);
}

void log_trouble(struct trouble *trouble, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_note(trouble, LOG_LEVEL_WARNING, format, arguments);
	va_end(arguments);
}

void log_passing(struct trouble *trouble, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	log_note(trouble, LOG_LEVEL_INFO, format, arguments);
	va_end(arguments);
}

void log_trouble_over(struct trouble *trouble, const char *what)
{
	if (!trouble->text[0])
		return;
	trouble->text[0] = '\0';
	log_info("%s", what);
}
