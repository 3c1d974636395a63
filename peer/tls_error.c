#include "tls_error.h"

#include <stdarg.h>
#include <stdio.h>

int tls_error(struct error *error, int code, const char *format, ...)
{
	const char *reason = ERR_reason_error_string(ERR_get_error());
	char message[TEXT_BYTES_MAX + 1];
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(message, sizeof(message), format, arguments);
	va_end(arguments);
	ERR_clear_error();
	return error_set(error, code, NULL, "%s%s%s", message, reason ? ": " : "", reason ? reason : "");
}
