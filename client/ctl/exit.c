#include "exit.h"

#include "../../proto/utf8.h"

#include <gpuwm/client.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

enum exit_code exit_code_of(int error)
{
	switch (-error) {
	case 0:
		return EXIT_DONE;
	case ECONNREFUSED:
	case ECONNRESET:
	case EPIPE:
		return EXIT_UNREACHABLE;
	case ENOENT:
	case ENODEV:
		return EXIT_NOT_FOUND;
	case EBUSY:
	case EEXIST:
		return EXIT_IN_USE;
	case EACCES:
	case EPERM:
		return EXIT_PERMISSION;
	case ETIMEDOUT:
		return EXIT_TIMEOUT;
	case ENOSPC:
	case EDQUOT:
		return EXIT_NO_ROOM;
	case EBADMSG:
		return EXIT_DAMAGED;
	default:
		return EXIT_FAILED;
	}
}

enum exit_code exit_with(enum exit_code code, const char *detail, const char *message, ...)
{
	char text[2048], shown[UTF8_SHOWN_MAX(sizeof(text))];
	va_list list;

	va_start(list, message);
	vsnprintf(text, sizeof(text), message, list);
	va_end(list);
	utf8_show(text, shown, sizeof(shown));
	fprintf(stderr, "gpuwmctl: %s\n", shown);
	if (detail && detail[0] != '\0') {
		utf8_show(detail, shown, sizeof(shown));
		fprintf(stderr, "  %s\n", shown);
	}
	return code;
}

enum exit_code exit_with_error(void)
{
	const struct gpuwm_error *error = gpuwm_error();

	return exit_with(exit_code_of(error->code), error->detail, "%s", error->message);
}

enum exit_code exit_with_connect_error(void)
{
	const struct gpuwm_error *error = gpuwm_error();
	enum exit_code code = error->code == -ENOENT ? EXIT_UNREACHABLE : exit_code_of(error->code);

	return exit_with(code, error->detail, "%s", error->message);
}
