/* The HTTP server: its connections, and what is answered on them. */
#ifndef GPUWM_EXPORTER_HTTP_H
#define GPUWM_EXPORTER_HTTP_H

#include "source.h"
#include "options.h"
#include "limits.h"
#include "snapshot.h"

#include <microhttpd.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>

/* ---- what the exporter answers to whom ---- */

/* Who sees more than totals: who shows the token, or everybody. */
struct admission {
	struct token token;
	bool for_all;
};

struct routes {
	const struct admission *admission;
	struct source *source;
	struct tally *tally;
};

/* Answers a GET or HEAD for the path. A client without a token gets what everybody may see. */
enum MHD_Result routes_answer(const struct routes *routes, struct MHD_Connection *connection, const char *path);
/* Answers with an error and a line of text, which is static. */
enum MHD_Result routes_refuse(const struct routes *routes, struct MHD_Connection *connection, unsigned code,
			      const char *text);

/* ---- the server ---- */

struct http;

/* Serves at the listening socket, on threads of its own. fd becomes the server's, also after a failure.
 * only_loopback: refuse requests with the name of another host. admission: who sees more than totals. Returns 0 and sets *ret, or fails with
 * -errno and logs why. admission, source and tally live as long as the server. */
int http_new(int fd, bool only_loopback, const struct admission *admission, struct source *source,
	     struct tally *tally, struct http **ret);
/* Ends the server and all connections. http may be NULL. Returns NULL. */
struct http *http_free(struct http *http);

/* Cuts slow connections. Call it every HTTP_LOOK_MS. */
void http_look(struct http *http);

/* ---- connections ----
 * libmicrohttpd limits their number, and how long a client may be silent. places.c limits how long a
 * client may take that keeps sending or reading a little, and never finishes. */

struct place {
	bool taken;
	bool asked; /* a whole request has come, once */
	bool busy; /* a whole request has come, and its answer is being made */
	int fd;
	uint64_t since_ms; /* of the connection's begin, of its last answer's begin, or of that answer's end */
};

struct places {
	pthread_mutex_t lock;
	struct place places[HTTP_CONNECTIONS_MAX];
	unsigned taken;
	struct tally *tally;
};

void places_begin(struct places *places, struct tally *tally);
void places_end(struct places *places);

/* A connection has begun. If there are many, it cuts a silent one. Returns the connection's place, or NULL if
 * there is none. */
struct place *places_take(struct places *places, int fd, uint64_t now_ms);
/* Returns whether new connections have to wait. Then it also cuts the oldest one that never asked. */
bool places_full(struct places *places, uint64_t now_ms);
/* A whole request has come. place may be NULL. */
void places_busy(struct places *places, struct place *place);
/* The answer is there for the client to read. place may be NULL. */
void places_answered(struct places *places, struct place *place, uint64_t now_ms);
/* The request has ended. If there are many connections, ends this one. place may be NULL. */
void places_done(struct places *places, struct place *place, uint64_t now_ms);
/* It has ended; its descriptor is still open. place may be NULL. */
void places_give(struct places *places, struct place *place);

/* Cuts the connections that are slow, and if there are many, those that are silent or do not read. */
void places_look(struct places *places, uint64_t now_ms);

/* ---- the status page ----
 * One HTML text with its style and script in it. The Makefile puts it together from the folder page/. */

/* Random digits that only the page's own style and script carry: the browser runs nothing else. */
#define NONCE_DIGITS 32

/* Returns a copy of the page with a new nonce, which the caller frees, and writes the nonce to
 * ret_nonce. NULL: out of memory, or the kernel has no random numbers. */
char *page_make(size_t *ret_bytes, char ret_nonce[NONCE_DIGITS + 1]);

#endif
