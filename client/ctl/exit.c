#include "exit.h"

#include "../../base/errors.h"
#include "../../base/utf8.h"
#include "line.h"
#include "output.h"
#include "terminal.h"

#include <gpuwm/client.h>

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MESSAGE_TEXT 2048

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

/* detail: NULL or "": there is none. */
static void tell_people(const char *message, const char *detail)
{
	char shown[UTF8_SHOWN_MAX(MESSAGE_TEXT)];

	utf8_show(message, shown, sizeof(shown));
	line_print(stderr, STYLE_BAD, "gpuwmctl: ", shown);
	if (!detail || !detail[0])
		return;
	utf8_show(detail, shown, sizeof(shown));
	line_print(stderr, STYLE_PLAIN, "  ", shown);
}

enum exit_code exit_tell(enum exit_code code, int error, const char *message, const char *detail)
{
	char shown_message[UTF8_SHOWN_MAX(MESSAGE_TEXT)], shown_detail[UTF8_SHOWN_MAX(MESSAGE_TEXT)];
	json_t *object;

	fflush(stdout); /* what was printed so far comes first */
	if (!output_is_data()) {
		tell_people(message, detail);
		return code;
	}
	utf8_show(message, shown_message, sizeof(shown_message));
	utf8_show(detail ? detail : "", shown_detail, sizeof(shown_detail));
	object = json_pack("{s:{s:s, s:s, s:s, s:i}}", "error", "code", error_name(error), "message",
			   shown_message, "detail", shown_detail, "exit", (int)code);
	if (!object || output_write(stderr, object) < 0)
		tell_people(message, detail); /* words rather than nothing */
	json_decref(object);
	return code;
}

enum exit_code exit_with(enum exit_code code, const char *detail, const char *message, ...)
{
	/* An errno that has this exit code. */
	static const int errors[] = {
		[EXIT_FAILED] = EIO,        [EXIT_USAGE] = EINVAL,   [EXIT_UNREACHABLE] = ECONNREFUSED,
		[EXIT_NOT_FOUND] = ENOENT,  [EXIT_IN_USE] = EBUSY,   [EXIT_PERMISSION] = EACCES,
		[EXIT_TIMEOUT] = ETIMEDOUT, [EXIT_NO_ROOM] = ENOSPC, [EXIT_DAMAGED] = EBADMSG,
	};
	char text[MESSAGE_TEXT];
	va_list list;

	va_start(list, message);
	vsnprintf(text, sizeof(text), message, list);
	va_end(list);
	return exit_tell(code, -errors[code], text, detail);
}

void exit_note(const char *detail, const char *message, ...)
{
	char text[MESSAGE_TEXT];
	va_list list;

	if (output_is_data())
		return;
	va_start(list, message);
	vsnprintf(text, sizeof(text), message, list);
	va_end(list);
	fflush(stdout);
	tell_people(text, detail);
}

enum exit_code exit_with_error(void)
{
	const struct gpuwm_error *error = gpuwm_error();

	return exit_tell(exit_code_of(error->code), error->code, error->message, error->detail);
}

enum exit_code exit_with_connect_error(void)
{
	const struct gpuwm_error *error = gpuwm_error();
	enum exit_code code = error->code == -ENOENT ? EXIT_UNREACHABLE : exit_code_of(error->code);

	return exit_tell(code, error->code, error->message, error->detail);
}

/* ---- memory for JSON ----
 *
 * Jansson's callers would have to look at each of some hundred results. */

static void *memory_or_exit(size_t bytes)
{
	static const char words[] = "gpuwmctl: out of memory for JSON\n",
			  json[] = "{\"error\":{\"code\":\"ENOMEM\",\"message\":\"out of memory for JSON\","
				   "\"detail\":\"\",\"exit\":1}}\n";
	const char *text = output_is_data() ? json : words;
	void *memory = malloc(bytes);

	if (memory)
		return memory;
	screen_end();
	if (write(STDERR_FILENO, text, strlen(text)) < 0)
		_exit(EXIT_FAILED);
	exit(EXIT_FAILED);
}

void exit_without_memory(void)
{
	json_set_alloc_funcs(memory_or_exit, free);
}
