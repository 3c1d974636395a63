#include "errors.h"

#include "utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Every code of docs/protocol.md. Names go over the wire and numbers do not, since they differ
 * between systems. */
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
	{-ESTALE, "ESTALE"},
	{-EUCLEAN, "EUCLEAN"},
	{-ECONNABORTED, "ECONNABORTED"},
	{-EIO, "EIO"},
	{-ENOMEM, "ENOMEM"},
	{-EMFILE, "EMFILE"},
	{-ENFILE, "ENFILE"},
	{-ETOOMANYREFS, "ETOOMANYREFS"},
	{-ECONNREFUSED, "ECONNREFUSED"},
	{-ECONNRESET, "ECONNRESET"},
	{-EHOSTUNREACH, "EHOSTUNREACH"},
	{-ECHILD, "ECHILD"},
	{-ERANGE, "ERANGE"},
	{-EFBIG, "EFBIG"},
	{-EMSGSIZE, "EMSGSIZE"},
	{-EOVERFLOW, "EOVERFLOW"},
	{-EPIPE, "EPIPE"},
	{-EAGAIN, "EAGAIN"},
	{-EXDEV, "EXDEV"},
	{-EKEYREJECTED, "EKEYREJECTED"},
	{-ENOTRECOVERABLE, "ENOTRECOVERABLE"},
	{-ENODATA, "ENODATA"},
	{-EALREADY, "EALREADY"},
	{-EOWNERDEAD, "EOWNERDEAD"},
	{-ESRCH, "ESRCH"},
	{-ENXIO, "ENXIO"},
};

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
	utf8_make_line(set.message);
	utf8_make_line(set.detail);
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
