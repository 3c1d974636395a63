#include "errors.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Every code of docs/protocol.md. Names travel, numbers do not: they differ between systems. */
static const struct {
	int code;
	const char *name;
} codes[] = {
	{-EPROTO, "EPROTO"},
	{-EINVAL, "EINVAL"},
	{-ENOSYS, "ENOSYS"},
	{-EPROTONOSUPPORT, "EPROTONOSUPPORT"},
	{-EACCES, "EACCES"},
	{-EPERM, "EPERM"},
	{-ENOENT, "ENOENT"},
	{-ENODEV, "ENODEV"},
	{-EEXIST, "EEXIST"},
	{-EBUSY, "EBUSY"},
	{-EDQUOT, "EDQUOT"},
	{-ENOSPC, "ENOSPC"},
	{-EBADMSG, "EBADMSG"},
	{-ENOTSUP, "ENOTSUP"},
	{-ETIMEDOUT, "ETIMEDOUT"},
	{-ECANCELED, "ECANCELED"},
	{-ESHUTDOWN, "ESHUTDOWN"},
	{-EIO, "EIO"},
	{-ENOMEM, "ENOMEM"},
	{-EMFILE, "EMFILE"},
	{-ENFILE, "ENFILE"},
	{-ETOOMANYREFS, "ETOOMANYREFS"},
	{-ECONNREFUSED, "ECONNREFUSED"},
	{-ECONNRESET, "ECONNRESET"},
	{-ECHILD, "ECHILD"},
	{-ERANGE, "ERANGE"},
	{-EFBIG, "EFBIG"},
	{-EMSGSIZE, "EMSGSIZE"},
	{-EOVERFLOW, "EOVERFLOW"},
	{-EPIPE, "EPIPE"},
	{-EAGAIN, "EAGAIN"},
};

/* Bytes of the character at `text`; 0: a control character, or no UTF-8. */
static size_t character_bytes(const unsigned char *text)
{
	static const struct {
		unsigned char first, last, second_min, second_max;
		size_t bytes;
	} forms[] = {
		{0xc2, 0xc2, 0xa0, 0xbf, 2}, /* below are the control characters of Latin-1 */
		{0xc3, 0xdf, 0x80, 0xbf, 2}, {0xe0, 0xe0, 0xa0, 0xbf, 3}, {0xe1, 0xec, 0x80, 0xbf, 3},
		{0xed, 0xed, 0x80, 0x9f, 3}, /* above are the halves of surrogates */
		{0xee, 0xef, 0x80, 0xbf, 3}, {0xf0, 0xf0, 0x90, 0xbf, 4}, {0xf1, 0xf3, 0x80, 0xbf, 4},
		{0xf4, 0xf4, 0x80, 0x8f, 4},
	};

	if (text[0] < 0x80)
		return text[0] >= 0x20 && text[0] != 0x7f;
	for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++) {
		size_t have = 2;

		if (text[0] < forms[i].first || text[0] > forms[i].last)
			continue;
		if (text[1] < forms[i].second_min || text[1] > forms[i].second_max)
			return 0;
		while (have < forms[i].bytes && (text[have] & 0xc0) == 0x80)
			have++;
		return have == forms[i].bytes ? have : 0;
	}
	return 0;
}

static void make_line(char *text)
{
	while (*text) {
		size_t bytes = character_bytes((unsigned char *)text);

		if (bytes == 0)
			*text = '?';
		text += bytes ? bytes : 1;
	}
}

int error_set(struct error *error, int code, const char *detail, const char *message, ...)
{
	struct error set = {.code = code};
	va_list arguments;

	if (!error)
		return code;
	va_start(arguments, message);
	vsnprintf(set.message, sizeof set.message, message, arguments);
	va_end(arguments);
	snprintf(set.detail, sizeof set.detail, "%s", detail ? detail : "");
	make_line(set.message);
	make_line(set.detail);
	*error = set;
	return code;
}

const char *error_name(int code)
{
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (codes[i].code == code)
			return codes[i].name;
	return "EIO";
}

int error_code(const char *name)
{
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		if (!strcmp(codes[i].name, name))
			return codes[i].code;
	return -EIO;
}
