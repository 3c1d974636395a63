/* The command line, and what it names: where the exporter listens, and who sees more than totals. */
#ifndef GPUWM_EXPORTER_OPTIONS_H
#define GPUWM_EXPORTER_OPTIONS_H

#include <stdbool.h>
#include <sys/socket.h>

/* ---- the token that a client shows to see more than totals: HTTP's "Authorization: Bearer TOKEN" ---- */

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

/* ---- where the exporter listens, and under which names a browser may ask it ---- */

#define ADDRESS_DEFAULT "127.0.0.1:9464"

struct address {
	struct sockaddr_storage socket;
	socklen_t bytes;
	bool is_loopback;
};

/* Reads "127.0.0.1:9464" or "[::1]:9464": an address in digits, and a port from 0 to 65535. Returns 0 or
 * -EINVAL. */
int address_parse(const char *text, struct address *ret);

/* Listens. Returns the socket, which the caller owns, and its port. Fails with -errno and logs why. */
int address_listen(const struct address *address, const char *text, unsigned *ret_port);

/* The Host header. A web page from anywhere may send a browser to 127.0.0.1 under a name of its own ("DNS rebinding"), and would then
 * read what the exporter tells. Returns whether the header names this machine by an address of the loopback interface or "localhost",
 * with or without a port. host may be NULL: a client that sends none is no browser. */
bool host_is_loopback(const char *host);

/* ---- the command line ---- */

struct options {
	const char *listen; /* as it was written */
	struct address address;
	const char *socket; /* gpuwmd's; NULL: the usual one */
	const char *token_file; /* NULL: there is no token, so nobody sees more than totals */
	bool no_token; /* everybody sees everything */
};

/* Returns 0, or 1 if help or version was printed and there is nothing to do. Fails with -EINVAL, and
 * logs why. */
int options_parse(struct options *ret, int argc, char *const *argv);

#endif
