#include "options.h"

#include "../service/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define SCHEME "Bearer "

static int line_read(const char *path, char ret_line[TOKEN_BYTES_MAX + 2])
{
	FILE *file = fopen(path, "re");
	int r;

	if (!file)
		return -errno;
	errno = 0;
	r = fgets(ret_line, TOKEN_BYTES_MAX + 2, file) ? 0 : -errno;
	if (r == 0 || !ferror(file))
		ret_line[r == 0 ? strcspn(ret_line, "\r\n") : 0] = '\0';
	fclose(file);
	return r;
}

int token_read(const char *path, struct token *ret)
{
	char line[TOKEN_BYTES_MAX + 2] = "";
	size_t bytes;
	int r = line_read(path, line);

	if (r < 0) {
		log_error(
			"the token file %s can't be read: %s (make one: install -m 640 -g gpuwm-observe /dev/null %s; "
			"openssl rand -hex 32 >%s)",
			path, strerror(-r), path, path);
		return r;
	}
	bytes = strlen(line);
	if (bytes >= TOKEN_BYTES_MIN && bytes <= TOKEN_BYTES_MAX && !strpbrk(line, " \t")) {
		memcpy(ret->text, line, bytes + 1);
		return 0;
	}
	log_error(
		"the token in %s has %zu bytes: %d to %d without spaces are needed (openssl rand -hex 32 >%s)",
		path, bytes, TOKEN_BYTES_MIN, TOKEN_BYTES_MAX, path);
	return -EINVAL;
}

enum token_shown token_judge(const struct token *token, const char *authorization)
{
	size_t bytes = strlen(token->text), differs;

	if (!authorization)
		return TOKEN_NONE;
	if (bytes == 0 || strncasecmp(authorization, SCHEME, sizeof(SCHEME) - 1) != 0)
		return TOKEN_WRONG;
	authorization += sizeof(SCHEME) - 1;
	differs = strlen(authorization) ^ bytes;
	/* Reads no further than either text: both end with a zero byte. */
	for (size_t i = 0; i < bytes && authorization[i]; i++)
		differs |= (size_t)(unsigned char)(token->text[i] ^ authorization[i]);
	return differs ? TOKEN_WRONG : TOKEN_RIGHT;
}
