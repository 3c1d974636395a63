#include "http.h"

#include "limits.h"
#include "snapshot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TYPE_TEXT "text/plain; charset=utf-8"
#define TYPE_METRICS "text/plain; version=0.0.4; charset=utf-8"
#define TYPE_JSON "application/json"
#define TYPE_HTML "text/html; charset=utf-8"

/* For every answer: no browser guesses its type, frames it, or lends it to another site. */
static const struct {
	const char *name, *value;
} common[] = {
	{MHD_HTTP_HEADER_CACHE_CONTROL, "no-store"},
	{"X-Content-Type-Options", "nosniff"},
	{"X-Frame-Options", "DENY"},
	{"Referrer-Policy", "no-referrer"},
	{"Cross-Origin-Resource-Policy", "same-origin"},
	{"Cross-Origin-Opener-Policy", "same-origin"},
};
#define POLICY_NOTHING "default-src 'none'; frame-ancestors 'none'"
#define POLICY_PAGE                                                                                            \
	"default-src 'none'; style-src 'nonce-%s'; script-src 'nonce-%s'; connect-src 'self'; img-src data:; " \
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

/* Sends the response and gives it back. response may be NULL: out of memory, which ends the connection. */
static enum MHD_Result send_response(struct MHD_Connection *connection, struct MHD_Response *response,
				     unsigned code, const char *type, const char *policy)
{
	enum MHD_Result sent;

	if (!response)
		return MHD_NO;
	for (size_t i = 0; i < sizeof(common) / sizeof(*common); i++)
		MHD_add_response_header(response, common[i].name, common[i].value);
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	MHD_add_response_header(response, "Content-Security-Policy", policy);
	if (code == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	if (code == MHD_HTTP_UNAUTHORIZED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_WWW_AUTHENTICATE, "Bearer realm=\"gpuwm\"");
	sent = MHD_queue_response(connection, code, response);
	MHD_destroy_response(response);
	return sent;
}

static enum MHD_Result send_text(struct MHD_Connection *connection, unsigned code, char *text,
				 enum MHD_ResponseMemoryMode mode)
{
	return send_response(connection, MHD_create_response_from_buffer(strlen(text), text, mode), code,
			     TYPE_TEXT, POLICY_NOTHING);
}

enum MHD_Result routes_refuse(const struct routes *routes, struct MHD_Connection *connection, unsigned code,
			      const char *text)
{
	atomic_fetch_add(&routes->tally->refused, 1);
	return send_text(connection, code, (char *)text, MHD_RESPMEM_PERSISTENT);
}

/* ---- who sees what ------------------------------------------------------- */

static enum token_shown token_of(const struct routes *routes, struct MHD_Connection *connection)
{
	if (routes->admission->for_all)
		return TOKEN_RIGHT;
	return token_judge(
		&routes->admission->token,
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION));
}

static enum MHD_Result refuse_token(const struct routes *routes, struct MHD_Connection *connection)
{
	return routes_refuse(
		routes, connection, MHD_HTTP_UNAUTHORIZED,
		*routes->admission->token.text
			? "the token is wrong or missing: send Authorization: Bearer TOKEN, with the token of the "
			  "exporter's --token-file\n"
			: "this exporter has no token, and shows totals only: start it with --token-file FILE\n");
}

/* ---- answers made of a snapshot ------------------------------------------ */

/* Prometheus says when it gives a scrape up: gpuwm_up 0 has to be there before. */
static uint64_t wait_ms_of(struct MHD_Connection *connection)
{
	const char *said =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, "X-Prometheus-Scrape-Timeout-Seconds");
	double given_ms = said ? strtod(said, NULL) * 1000 : 0, rest_ms = given_ms / 5;

	if (rest_ms > SCRAPE_REST_MS_MAX)
		rest_ms = SCRAPE_REST_MS_MAX;
	/* Also if what it says is no number. */
	if (!(given_ms > 0 && given_ms - rest_ms < SNAPSHOT_WAIT_MS))
		return SNAPSHOT_WAIT_MS;
	return (uint64_t)(given_ms - rest_ms);
}

static struct snapshot *snapshot_get(const struct routes *routes, struct MHD_Connection *connection)
{
	return source_get(routes->source, wait_ms_of(connection));
}

static void drop_snapshot(void *snapshot)
{
	snapshot_unref(snapshot);
}

/* What a snapshot has as text: snapshot_metrics, snapshot_state. */
typedef const char *text_of_fn(struct snapshot *snapshot, size_t *ret_bytes);

static enum MHD_Result answer_text(const struct routes *routes, struct MHD_Connection *connection,
				   text_of_fn *text_of, const char *type)
{
	enum token_shown shown = token_of(routes, connection);
	struct MHD_Response *response = NULL;
	struct snapshot *snapshot, *seen;
	const char *text;
	size_t bytes = 0;

	if (shown == TOKEN_WRONG)
		return refuse_token(routes, connection);
	snapshot = snapshot_get(routes, connection);
	seen = snapshot && shown == TOKEN_NONE ? snapshot_open(snapshot) : snapshot;
	text = seen ? text_of(seen, &bytes) : NULL;
	/* The text is not copied: the response holds the snapshot. */
	if (text)
		response = MHD_create_response_from_buffer_with_free_callback_cls(bytes, (void *)text,
										  drop_snapshot, snapshot);
	if (!response)
		snapshot_unref(snapshot);
	return send_response(connection, response, MHD_HTTP_OK, type, POLICY_NOTHING);
}

static enum MHD_Result answer_metrics(const struct routes *routes, struct MHD_Connection *connection)
{
	atomic_fetch_add(&routes->tally->scrapes, 1);
	return answer_text(routes, connection, snapshot_metrics, TYPE_METRICS);
}

static enum MHD_Result answer_state(const struct routes *routes, struct MHD_Connection *connection)
{
	atomic_fetch_add(&routes->tally->pages, 1);
	return answer_text(routes, connection, snapshot_state, TYPE_JSON);
}

/* A line for a person, with the status for a prober. */
static enum MHD_Result send_verdict(struct MHD_Connection *connection, bool good, const char *why)
{
	char *line;

	if (asprintf(&line, "%s\n", why) < 0)
		return MHD_NO;
	return send_text(connection, good ? MHD_HTTP_OK : MHD_HTTP_SERVICE_UNAVAILABLE, line,
			 MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer_health(const struct routes *routes, struct MHD_Connection *connection)
{
	struct snapshot *snapshot = snapshot_get(routes, connection);
	enum MHD_Result sent;

	if (!snapshot)
		return MHD_NO;
	sent = send_verdict(connection, snapshot->up, snapshot->up ? "gpuwmd answers" : snapshot->why);
	snapshot_unref(snapshot);
	return sent;
}

static enum MHD_Result answer_ready(const struct routes *routes, struct MHD_Connection *connection)
{
	const char *reference = MHD_lookup_connection_value(connection, MHD_GET_ARGUMENT_KIND, "version");
	struct snapshot *snapshot;
	char why[READY_WHY_BYTES];
	enum MHD_Result sent;
	bool ready;

	/* Which models there are is not for everybody. */
	if (token_of(routes, connection) != TOKEN_RIGHT)
		return refuse_token(routes, connection);
	if (!reference || !*reference)
		return routes_refuse(
			routes, connection, MHD_HTTP_BAD_REQUEST,
			"which version? /readyz?version=MODEL, MODEL@TAG, MODEL@ALIAS or a version's id\n");
	snapshot = snapshot_get(routes, connection);
	if (!snapshot)
		return MHD_NO;
	ready = ready_is(snapshot, reference, why);
	sent = send_verdict(connection, ready, why);
	snapshot_unref(snapshot);
	return sent;
}

static enum MHD_Result answer_page(const struct routes *routes, struct MHD_Connection *connection)
{
	char nonce[NONCE_DIGITS + 1], policy[sizeof(POLICY_PAGE) + 2 * NONCE_DIGITS];
	size_t bytes;
	char *page = page_make(&bytes, nonce);

	if (!page)
		return MHD_NO;
	atomic_fetch_add(&routes->tally->pages, 1);
	snprintf(policy, sizeof(policy), POLICY_PAGE, nonce, nonce);
	return send_response(connection, MHD_create_response_from_buffer(bytes, page, MHD_RESPMEM_MUST_FREE),
			     MHD_HTTP_OK, TYPE_HTML, policy);
}

/* ---- the table ----------------------------------------------------------- */

static const struct {
	const char *path;
	enum MHD_Result (*answer)(const struct routes *routes, struct MHD_Connection *connection);
} table[] = {
	{"/", answer_page},          {"/metrics", answer_metrics}, {"/api/state", answer_state},
	{"/healthz", answer_health}, {"/readyz", answer_ready},
};

enum MHD_Result routes_answer(const struct routes *routes, struct MHD_Connection *connection, const char *path)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++) {
		if (strcmp(table[i].path, path) == 0)
			return table[i].answer(routes, connection);
	}
	return routes_refuse(routes, connection, MHD_HTTP_NOT_FOUND,
			     "there is /, /metrics, /api/state, /healthz and /readyz?version=MODEL@TAG\n");
}
