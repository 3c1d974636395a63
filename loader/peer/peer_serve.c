#include "peer_part.h"

#include "../../base/clock.h"
#include "../../peer/places.h"
#include "../../peer/port.h"
#include "../../peer/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <openssl/crypto.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_MS 50 /* how soon it sees that it is to end */

struct peer_serve {
	struct peer_keys *keys;
	const struct peer_settings *settings;
	const struct peer_offer *offer;
	const struct taken_part *parts;
	struct served_version version;
	struct served_part served[PARTS_PER_VERSION_MAX];
	struct served_segment segments[PARTS_PER_VERSION_MAX][PART_SEGMENTS_MAX];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1];
	struct takers *takers; /* one takes from here; the others are sent on to it */
	int listener;
	unsigned port;
	pthread_t thread;
	bool listening;
	atomic_bool ending;
	struct places places;
};

/* ---- the source ------------------------------------------------------------ */

/* Whoever was sent here asks by the name or the id that the seed has. */
static int peer_serve_find(void *user, const char *ref, struct served_version **ret, struct error *error)
{
	struct peer_serve *serve = user;
	char id[VERSION_ID_TEXT];

	hex128_format(serve->version.id.bytes, id);
	if (strcmp(ref, serve->offer->ref) != 0 && strcmp(ref, id) != 0)
		return error_set(error, -ENOENT, "ask gpuwm-peer of this node",
				 "this loader serves %.300s only, which it takes", serve->offer->ref);
	*ret = &serve->version;
	return 0;
}

static void peer_serve_leave(void *user, struct served_version *version)
{
	(void)user;
	(void)version;
}

static int64_t peer_serve_sums(void *user, struct served_version *version, const struct served_pieces *pieces,
			       const struct sum **ret_sums, struct error *error)
{
	const struct peer_serve *serve = user;
	const struct peer_offer_part *part = &serve->offer->parts[pieces->rank];

	(void)version;
	(void)error;
	*ret_sums = part->sums + part->first[pieces->segment] + pieces->first;
	return (int64_t)(part->first[pieces->segment + 1] - part->first[pieces->segment] - pieces->first);
}

static int peer_serve_look(void *user, struct served_version *version, const struct served_pieces *pieces,
			   const void **ret, struct error *error)
{
	struct peer_serve *serve = user;
	const struct peer_run run = {pieces->segment, pieces->first, (uint32_t)pieces->count};

	(void)version;
	if (atomic_load(&serve->ending))
		return error_set(error, -ESHUTDOWN, "go on at another node", "the load ended here");
	if (!peer_pieces_are_here(serve->parts[pieces->rank].pieces, &run))
		return 1;
	*ret = peer_part_address(&serve->parts[pieces->rank], &run);
	return 0;
}

static const struct serve_source source = {
	.find = peer_serve_find, .leave = peer_serve_leave, .sums = peer_serve_sums, .look = peer_serve_look};

/* ---- connections ----------------------------------------------------------- */

struct connection {
	struct peer_serve *serve;
	struct place *place;
};

static void serve_node(struct peer_serve *serve, struct link *link)
{
	const struct server server = {
		.source = &source,
		.user = serve,
		.takers = serve->takers,
		.program = "gpuwm-loader " GPUWM_VERSION,
		.clear = serve->settings->clear,
	};
	struct serve_report report;
	struct error error;

	if (link_peer_matches(link, &serve->settings->names)) {
		serve_link(&server, link, &report, &error);
		return;
	}
	error_set(&error, -EACCES, "its operator may add a name to `names` in [peers] there",
		  "this node serves %s nothing: its certificate has none of the names that may take",
		  link_peer(link));
	serve_refuse(link, &error);
}

/* What goes wrong on a connection is the taker's to tell. */
static void serve_accepted(struct peer_serve *serve, struct place *place, int fd)
{
	struct error error;
	struct link *link;

	if (link_accept(serve->keys, fd, LINK_HANDSHAKE_MS, &link, &error) < 0)
		return;
	if (places_know(&serve->places, place, link, &error) == 0)
		serve_node(serve, link);
	else
		serve_refuse(link, &error);
	places_forget(&serve->places, place);
	link_close(link);
}

static void *serve_one(void *user_data)
{
	struct connection connection = *(struct connection *)user_data;
	const int own = connection.place->fd;
	/* The link's; the place's own stays, for whoever ends the connection. */
	int fd = fcntl(own, F_DUPFD_CLOEXEC, 0);

	free(user_data);
	if (fd >= 0)
		serve_accepted(connection.serve, connection.place, fd);
	/* When all places are given up, the process may exit, and OpenSSL ends with it. */
	OPENSSL_thread_stop();
	places_give(&connection.serve->places, connection.place);
	close(own);
	return NULL;
}

/* Returns whether a thread has the connection now. */
static bool serve_begun(struct peer_serve *serve, struct place *place)
{
	struct connection *connection = malloc(sizeof(*connection));
	pthread_t thread;

	if (!connection)
		return false;
	*connection = (struct connection){serve, place};
	if (pthread_create(&thread, NULL, serve_one, connection) == 0)
		return pthread_detach(thread) == 0;
	free(connection);
	return false;
}

static void serve_new(struct peer_serve *serve, int fd)
{
	const struct origin origin = origin_of(fd);
	struct place *place = places_take(&serve->places, fd, &origin);

	if (place && serve_begun(serve, place))
		return;
	if (place)
		places_give(&serve->places, place);
	close(fd);
}

static void *accept_all(void *user_data)
{
	struct peer_serve *serve = user_data;

	while (!atomic_load(&serve->ending)) {
		struct pollfd wait = {.fd = serve->listener, .events = POLLIN};
		int fd = poll(&wait, 1, LOOK_MS) > 0 ? accept4(serve->listener, NULL, NULL, SOCK_CLOEXEC) : -1;

		if (fd >= 0)
			serve_new(serve, fd);
	}
	return NULL;
}

/* ---- begin and end --------------------------------------------------------- */

static void peer_serve_describe(struct peer_serve *serve)
{
	const struct peer_offer *offer = serve->offer;
	size_t model = strcspn(offer->ref, "@");

	memcpy(serve->model, offer->ref, model);
	strcpy(serve->tag, offer->ref + model + 1);
	for (uint32_t i = 0; i < offer->world; i++) {
		const struct taken_part *part = &serve->parts[i];

		for (uint32_t k = 0; k < part->offer->segment_count; k++)
			serve->segments[i][k] =
				(struct served_segment){part->segments[k].address, part->segments[k].bytes};
		serve->served[i] = (struct served_part){
			.rank = i,
			.device = part->device,
			.index = part->offer->index,
			.index_bytes = part->offer->index_bytes,
			.segments = serve->segments[i],
			.segment_count = part->offer->segment_count,
		};
	}
	serve->version =
		(struct served_version){offer->version, serve->model, serve->tag, offer->world, serve->served};
}

int peer_serve_begin(struct peer_keys *keys, const struct peer_settings *settings,
		     const struct peer_offer *offer, const struct taken_part *parts, struct peer_serve **ret,
		     struct error *error)
{
	struct peer_serve *serve;
	int r;

	if (!settings->listen)
		return error_set(error, -ENOTSUP, "set it if takers may take from here",
				 "[peers] has no `listen`: this node serves nothing");
	serve = calloc(1, sizeof(*serve));

	if (!serve)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	serve->keys = keys;
	serve->settings = settings;
	serve->offer = offer;
	serve->parts = parts;
	places_begin(&serve->places);
	peer_serve_describe(serve);
	serve->takers = takers_new(TAKERS_DEFAULT);
	serve->listener = port_open(settings->listen, true, &serve->port, error);
	r = serve->listener < 0 ? serve->listener : 0;
	if (r == 0 && !serve->takers)
		r = error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	if (r == 0) {
		r = -pthread_create(&serve->thread, NULL, accept_all, serve);
		serve->listening = r == 0;
		if (r < 0)
			error_set(error, r, NULL, "no thread can be made to serve the next taker: %s",
				  strerror(-r));
	}
	if (r == 0)
		*ret = serve;
	else
		peer_serve_end(serve);
	return r;
}

unsigned peer_serve_port(const struct peer_serve *serve)
{
	return serve->port;
}

unsigned peer_serve_count(struct peer_serve *serve)
{
	return places_known(&serve->places);
}

struct peer_serve *peer_serve_end(struct peer_serve *serve)
{
	if (!serve)
		return NULL;
	atomic_store(&serve->ending, true);
	if (serve->listening)
		pthread_join(serve->thread, NULL);
	places_clear(&serve->places);
	if (serve->listener >= 0)
		close(serve->listener);
	takers_free(serve->takers);
	places_end(&serve->places);
	free(serve);
	return NULL;
}
