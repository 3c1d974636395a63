#include "exporter/options.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_text(const char *text, struct token *ret)
{
	char path[] = "/tmp/gpuwm-token-XXXXXX";
	int fd = mkstemp(path), r;

	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
	r = token_read(path, ret);
	unlink(path);
	return r;
}

Test(exporter_token, is_the_first_line_of_its_file)
{
	struct token token = {0};

	cr_expect_eq(read_text("0123456789abcdef\nmore\n", &token), 0);
	cr_expect_str_eq(token.text, "0123456789abcdef");
}

Test(exporter_token, that_could_be_guessed_or_cannot_be_sent_is_refused)
{
	struct token token = {0};
	char long_line[TOKEN_BYTES_MAX + 2];

	memset(long_line, 'x', sizeof(long_line));
	long_line[sizeof(long_line) - 1] = '\0';
	cr_expect_eq(read_text("", &token), -EINVAL);
	cr_expect_eq(read_text("\n0123456789abcdef\n", &token), -EINVAL);
	cr_expect_eq(read_text("0123456789abcde\n", &token), -EINVAL);
	cr_expect_eq(read_text("0123456789 abcdef\n", &token), -EINVAL);
	cr_expect_eq(read_text(long_line, &token), -EINVAL);
	cr_expect_eq(token_read("/nowhere/token", &token), -ENOENT);
	cr_expect_str_eq(token.text, "");
}

Test(exporter_token, only_the_whole_token_is_right)
{
	const struct token token = {"0123456789abcdef"}, none = {""};

	cr_expect_eq(token_judge(&token, NULL), TOKEN_NONE);
	cr_expect_eq(token_judge(&token, "Bearer 0123456789abcdef"), TOKEN_RIGHT);
	cr_expect_eq(token_judge(&token, "bearer 0123456789abcdef"), TOKEN_RIGHT, "schemes have no case");
	cr_expect_eq(token_judge(&token, "Bearer 0123456789abcdeF"), TOKEN_WRONG);
	cr_expect_eq(token_judge(&token, "Bearer 0123456789abcde"), TOKEN_WRONG);
	cr_expect_eq(token_judge(&token, "Bearer 0123456789abcdef0"), TOKEN_WRONG);
	cr_expect_eq(token_judge(&token, "Bearer "), TOKEN_WRONG);
	cr_expect_eq(token_judge(&token, "Basic 0123456789abcdef"), TOKEN_WRONG);
	cr_expect_eq(token_judge(&none, "Bearer "), TOKEN_WRONG, "without a token, no text is one");
}
