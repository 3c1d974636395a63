#include "http.h"

#include "options.h"
#include "limits.h"
#include "../service/log.h"
#include "../base/clock.h"

#include <errno.h>
#include <microhttpd.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct http {
	struct MHD_Daemon *daemon;
	struct places places;
	struct routes routes;
	bool only_loopback;
};

static struct place *place_of(struct MHD_Connection *connection)
{
	const union MHD_ConnectionInfo *info =
		MHD_get_connection_info(connection, MHD_CONNECTION_INFO_SOCKET_CONTEXT);

	return info ? info->socket_context : NULL;
}

static void on_connection(void *user, struct MHD_Connection *connection, void **socket_context,
			  enum MHD_ConnectionNotificationCode code)
{
	const union MHD_ConnectionInfo *info;
	const struct timespec pause = {.tv_nsec = 1000000};
	const uint64_t end_ms = clock_steady_ms() + HTTP_ROOM_MS;
	struct http *http = user;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
		places_give(&http->places, *socket_context);
		return;
	}
	/* Nobody is accepted meanwhile: they wait in the kernel's queue. */
	while (places_full(&http->places, clock_steady_ms()) && clock_steady_ms() < end_ms)
		nanosleep(&pause, NULL);
	info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	*socket_context = info ? places_take(&http->places, info->connect_fd, clock_steady_ms()) : NULL;
}

static void on_completed(void *user, struct MHD_Connection *connection, void **request,
			 enum MHD_RequestTerminationCode code)
{
	struct http *http = user;

	(void)request;
	(void)code;
	places_done(&http->places, place_of(connection), clock_steady_ms());
}

/* libmicrohttpd has lines about every client that misbehaves, who could fill a log. */
static void on_log(void *user, const char *format, va_list arguments)
{
	(void)user;
	(void)format;
	(void)arguments;
}

/* Nobody who reads needs a body, and one that comes slowly would keep a place. */
static bool has_body(struct MHD_Connection *connection)
{
	const char *length =
		MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);

	return (length && strcmp(length, "0") != 0) ||
	       MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING);
}

/* libmicrohttpd calls it when the headers are there, and then for the answer. */
static enum MHD_Result on_request(void *user, struct MHD_Connection *connection, const char *path,
				  const char *method, const char *version, const char *body, size_t *body_bytes,
				  void **request)
{
	struct http *http = user;
	struct place *place = place_of(connection);
	enum MHD_Result sent;
	bool reads = strcmp(method, MHD_HTTP_METHOD_GET) == 0 || strcmp(method, MHD_HTTP_METHOD_HEAD) == 0;

	(void)version;
	(void)body;
	(void)body_bytes;
	if (!reads)
		return routes_refuse(&http->routes, connection, MHD_HTTP_METHOD_NOT_ALLOWED,
				     "only GET and HEAD: the exporter changes nothing\n");
	if (has_body(connection))
		return routes_refuse(&http->routes, connection, MHD_HTTP_BAD_REQUEST,
				     "the request has a body: send it without one\n");
	if (!*request) {
		*request = http;
		return MHD_YES;
	}
	if (http->only_loopback &&
	    !host_is_loopback(MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST)))
		return routes_refuse(
			&http->routes, connection, MHD_HTTP_FORBIDDEN,
			"the exporter listens on this machine only: call it 127.0.0.1, [::1] or localhost\n");
	/* A whole request has come. Making the answer may take as long as gpuwmd does; reading it is up to the client. */
	places_busy(&http->places, place);
	sent = routes_answer(&http->routes, connection, path);
	places_answered(&http->places, place, clock_steady_ms());
	return sent;
}

static struct MHD_Daemon *daemon_start(struct http *http, int fd)
{
	/* The logger comes first: it takes what libmicrohttpd says of the others. */
	return MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL |
					MHD_USE_ERROR_LOG,
				0, NULL, NULL, on_request, http, MHD_OPTION_EXTERNAL_LOGGER, on_log, NULL,
				MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, HTTP_CONNECTIONS_MAX,
				MHD_OPTION_CONNECTION_TIMEOUT, HTTP_REQUEST_MS / 1000,
				MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HTTP_HEADER_BYTES,
				MHD_OPTION_THREAD_STACK_SIZE, (size_t)HTTP_STACK_BYTES,
				MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_NOTIFY_COMPLETED,
				on_completed, http, MHD_OPTION_END);
}

int http_new(int fd, bool only_loopback, const struct admission *admission, struct source *source,
	     struct tally *tally, struct http **ret)
{
	struct http *http = calloc(1, sizeof(*http));

	if (http) {
		http->routes = (struct routes){admission, source, tally};
		http->only_loopback = only_loopback;
		places_begin(&http->places, tally);
		http->daemon = daemon_start(http, fd);
		if (http->daemon) {
			*ret = http;
			return 0;
		}
		places_end(&http->places);
	}
	log_error("the HTTP server can't be started: %s", strerror(errno));
	close(fd);
	free(http);
	return -ENOMEM;
}

struct http *http_free(struct http *http)
{
	if (!http)
		return NULL;
	MHD_stop_daemon(http->daemon);
	places_end(&http->places);
	free(http);
	return NULL;
}

void http_look(struct http *http)
{
	places_look(&http->places, clock_steady_ms());
}
