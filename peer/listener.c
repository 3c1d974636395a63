#include "listener.h"

#include "../service/log.h"
#include "../base/bytes.h"
#include "../base/clock.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/crypto.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* How long takers have to learn that this node stops, and to say goodbye. */
#define STOP_MS 2000
/* UCX's functions and OpenSSL's take some 100 KiB of a stack. */
#define STACK_BYTES MIB(1)

/* ---- settings ---- */

void listener_begin(struct listener *listener, const struct server *server, int fd,
		    struct peer_settings *settings, struct peer_keys *keys)
{
	*listener = (struct listener){.server = *server, .fd = fd, .keys = keys, .settings = *settings};
	atomic_store(&listener->server.clear, settings->clear);
	pthread_mutex_init(&listener->lock, NULL);
	places_begin(&listener->places);
}

void listener_change(struct listener *listener, struct peer_settings *settings, struct peer_keys *keys)
{
	char *listen = settings->listen;

	pthread_mutex_lock(&listener->lock);
	settings->listen = listener->settings.listen;
	listener->settings.listen = listen;
	peer_settings_clear(&listener->settings);
	peer_keys_release(listener->keys);
	listener->settings = *settings;
	listener->keys = keys;
	pthread_mutex_unlock(&listener->lock);
	atomic_store(&listener->server.clear, settings->clear);
}

/* ---- one connection ---- */

struct connection {
	struct listener *listener;
	struct place *place;
};

static void log_end(const struct link *link, const struct serve_report *report, int r,
		    const struct error *error, uint64_t ms)
{
	char bytes[BYTES_TEXT];
	const char *name = link_peer_name(link);

	if (report->version[0])
		log_info("%s%s%s: %s %s, %s in %" PRIu64 " ms", link_peer(link), *name ? " " : "", name,
			 report->sent.done ? "took" : "took a part of", report->version,
			 bytes_format(report->sent.bytes, bytes), ms);
	if (r < 0)
		log_warning("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
}

static void connection_serve(struct listener *listener, struct link *link)
{
	struct serve_report report;
	uint64_t begin = clock_steady_ms();
	struct error error;
	bool is_named;
	int r;

	pthread_mutex_lock(&listener->lock);
	is_named = link_peer_matches(link, &listener->settings.names);
	pthread_mutex_unlock(&listener->lock);
	if (!is_named) {
		error_set(&error, -EACCES, "its operator may add a name to `names` in [peers] there",
			  "this node serves %s nothing: its certificate has none of the names that may take",
			  link_peer(link));
		log_warning("%s", error.message);
		serve_refuse(link, &error);
		return;
	}
	r = serve_link(&listener->server, link, &report, &error);
	log_end(link, &report, r, &error, clock_steady_ms() - begin);
	pthread_mutex_lock(&listener->lock);
	listener->sent += report.sent.bytes;
	pthread_mutex_unlock(&listener->lock);
}

/* Everybody who reaches the port can make these lines. A probe that only connects makes none. */
static void log_refusal(const struct error *error)
{
	static _Atomic uint64_t last;
	uint64_t now = clock_steady_ms(), before = last;

	if (error->code == -ENOLINK)
		return;
	if (now - before >= 1000 && atomic_compare_exchange_strong(&last, &before, now))
		log_warning("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
}

/* Its place is one of those that give way. */
static void connection_refuse(struct link *link, const struct error *why)
{
	log_refusal(why);
	serve_refuse(link, why);
}

static void *connection_run(void *user)
{
	struct connection *connection = user;
	struct listener *listener = connection->listener;
	struct place *place = connection->place;
	struct peer_keys *keys;
	struct link *link = NULL;
	struct error error;
	int fd = dup(place->fd); /* the link's; the place's own stays, for whoever ends the connection */

	free(connection);
	pthread_mutex_lock(&listener->lock);
	keys = peer_keys_hold(listener->keys);
	pthread_mutex_unlock(&listener->lock);
	if (fd < 0)
		log_warning("no descriptor for a connection: raise LimitNOFILE= in the unit");
	else if (link_accept(keys, fd, LINK_HANDSHAKE_MS, &link, &error) < 0)
		log_refusal(&error);
	if (link && places_know(&listener->places, place, link, &error) == 0)
		connection_serve(listener, link);
	else if (link)
		connection_refuse(link, &error);
	places_forget(&listener->places, place);
	link_close(link);
	peer_keys_release(keys);
	/* When all places are given up, the process may exit, and OpenSSL ends with it. What this thread has of OpenSSL's must be gone then. */
	OPENSSL_thread_stop();
	fd = place->fd;
	places_give(&listener->places, place);
	close(fd);
	return NULL;
}

static int connection_begin(struct connection *connection)
{
	pthread_attr_t detached;
	pthread_t thread;
	int r;

	pthread_attr_init(&detached);
	pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
	pthread_attr_setstacksize(&detached, STACK_BYTES);
	r = pthread_create(&thread, &detached, connection_run, connection);
	pthread_attr_destroy(&detached);
	return r;
}

static void listener_take(struct listener *listener, int fd)
{
	const struct origin origin = origin_of(fd);
	struct place *place = places_take(&listener->places, fd, &origin);
	struct connection *connection = place ? malloc(sizeof(*connection)) : NULL;

	if (connection) {
		*connection = (struct connection){listener, place};
		if (connection_begin(connection) == 0)
			return;
		log_warning("no thread for a connection: raise TasksMax= in the unit");
	}
	free(connection);
	close(fd);
	if (place)
		places_give(&listener->places, place);
}

void listener_accept(struct listener *listener)
{
	int fd;

	while ((fd = accept4(listener->fd, NULL, NULL, SOCK_CLOEXEC)) >= 0)
		listener_take(listener, fd);
}

void listener_end(struct listener *listener)
{
	close(listener->fd);
	places_drain(&listener->places, STOP_MS);
	places_clear(&listener->places);
	places_end(&listener->places);
	peer_settings_clear(&listener->settings);
	peer_keys_release(listener->keys);
	pthread_mutex_destroy(&listener->lock);
}
