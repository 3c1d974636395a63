/* The token that a client shows to see more than totals: HTTP's "Authorization: Bearer TOKEN". */
#ifndef GPUWM_EXPORTER_TOKEN_H
#define GPUWM_EXPORTER_TOKEN_H

#include <stdbool.h>

/* So long that nobody finds it by trying: 16 random characters of 64 have 96 bits. */
#define TOKEN_BYTES_MIN 16
#define TOKEN_BYTES_MAX 256 /* far more than any generator makes; it still fits a header */

struct token {
	char text[TOKEN_BYTES_MAX + 1]; /* "": there is none */
};

enum token_shown { TOKEN_NONE, TOKEN_WRONG, TOKEN_RIGHT };

/* Reads the first line of the file. Returns 0 and sets *ret, or fails with -errno and logs why. */
int token_read(const char *path, struct token *ret);

/* What the Authorization header shows. authorization: NULL if there is none. How long the answer takes does not tell how
 * much of a wrong token was right. */
enum token_shown token_judge(const struct token *token, const char *authorization);

#endif
