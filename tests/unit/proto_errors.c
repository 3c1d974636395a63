#include "../../base/errors.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* The table of docs/protocol.md. */
static const char *const documented[] = {
	"EPROTO",   "EINVAL",       "ENOSYS",       "EPROTONOSUPPORT", "EACCES",     "ENOENT",
	"ENODEV",   "EEXIST",       "EBUSY",        "EDQUOT",          "ENOSPC",     "EBADMSG",
	"ENOTSUP",  "ETIMEDOUT",    "ECANCELED",    "ESHUTDOWN",       "ECONNRESET", "ESTALE",
	"EUCLEAN",  "EIO",          "EXDEV",        "ENOTRECOVERABLE", "ENODATA",    "EKEYREJECTED",
	"ECHILD",   "ECONNABORTED", "ECONNREFUSED", "EFBIG",           "ENOMEM",     "EMFILE",
	"ENFILE",   "EAGAIN",       "ETOOMANYREFS", "EPERM",           "EPIPE",      "ERANGE",
	"EMSGSIZE", "EOVERFLOW",    "EHOSTUNREACH",
};

static struct error error;

Test(errors, every_documented_name_is_an_errno_and_comes_back)
{
	for (size_t i = 0; i < sizeof(documented) / sizeof(documented[0]); i++) {
		int code = error_code(documented[i]);

		cr_expect_str_eq(error_name(code), documented[i]);
		if (strcmp(documented[i], "EIO") != 0)
			cr_expect_neq(code, -EIO, "%s is not known", documented[i]);
		/* glibc has one number for both. */
		if (code != -EOPNOTSUPP)
			cr_expect_str_eq(strerrorname_np(-code), documented[i]);
	}
}

Test(errors, what_the_protocol_does_not_know)
{
	cr_expect_str_eq(error_name(-ENOTTY), "EIO");
	cr_expect_str_eq(error_name(0), "EIO");
	cr_expect_eq(error_code("ENOTTY"), -EIO);
	cr_expect_eq(error_code("enoent"), -EIO);
	cr_expect_eq(error_code(""), -EIO);
}

Test(errors, set_fills_everything_and_returns_the_code)
{
	memset(&error, 'x', sizeof(error));
	cr_assert_eq(error_set(&error, -ENOENT, "see ls", "no model %s", "llama"), -ENOENT);
	cr_expect_eq(error.code, -ENOENT);
	cr_expect_str_eq(error.message, "no model llama");
	cr_expect_str_eq(error.detail, "see ls");
	error_set(&error, -EIO, NULL, "again");
	cr_expect_str_eq(error.detail, "");
}

Test(errors, set_without_an_error_returns_the_code)
{
	cr_assert_eq(error_set(NULL, -EBUSY, "detail", "message"), -EBUSY);
}

Test(errors, arguments_may_lie_in_the_error)
{
	error_set(&error, -EIO, "detail", "disk");
	error_set(&error, -EBADMSG, error.message, "%s of %s", error.detail, error.message);
	cr_expect_str_eq(error.message, "detail of disk");
	cr_expect_str_eq(error.detail, "disk");
}

Test(errors, long_texts_are_cut)
{
	char text[4000];

	memset(text, 'a', sizeof(text) - 1);
	text[sizeof(text) - 1] = 0;
	error_set(&error, -EIO, text, "%s", text);
	cr_expect_eq(strlen(error.message), TEXT_BYTES_MAX);
	cr_expect_eq(strlen(error.detail), TEXT_BYTES_MAX);
}

/* What comes out for what goes in. */
static void becomes(const char *in, const char *out)
{
	error_set(&error, -EIO, in, "%s", in);
	cr_expect_str_eq(error.message, out);
	cr_expect_str_eq(error.detail, out);
}

Test(errors, texts_keep_utf8)
{
	becomes("\u00a0\u00e4\u0100\u07ff", "\u00a0\u00e4\u0100\u07ff");
	becomes("\u0800\u20ac\ud7ff\ue000\uffee", "\u0800\u20ac\ud7ff\ue000\uffee");
	becomes("\U00010000\U0001f600\U0010ffff", "\U00010000\U0001f600\U0010ffff");
}

Test(errors, control_characters_become_marks)
{
	becomes("a\nb\x1b[2Jc\x7f", "a?b?[2Jc?");
	becomes("\xc2\x80\xc2\x9b", "????");
}

Test(errors, what_is_no_utf8_becomes_marks)
{
	becomes("\x80\xbf\xff\xfe", "????");
	becomes("\xc0\xaf\xc1\xbf", "????"); /* overlong */
	becomes("\xe0\x80\xaf", "???");
	becomes("\xf0\x80\x80\xaf", "????");
	becomes("\xed\xa0\x80", "???"); /* half of a surrogate */
	becomes("\xf4\x90\x80\x80", "????"); /* above Unicode */
	becomes("\xf5\x80\x80\x80", "????");
	becomes("\xc3", "?"); /* ends early */
	becomes("\xe2\x82", "??");
	becomes("\xf0\x9f\x98", "???");
	becomes("\xe2\x82x", "??x");
}
