#include "peer_part.h"

#include "../../base/clock.h"
#include "../../peer/port.h"
#include "../../peer/serve.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOK_MS 50 /* how soon it sees that it is to end */

struct place {
	struct peer_serve *serve;
	pthread_t thread;
	bool used; /* the thread is to be joined */
	atomic_bool ended;
	uint64_t number; /* of the connection: the oldest one has the smallest */
	int fd; /* under the lock; the link has a descriptor of its own */
	struct link *
		link; /* under the lock; NULL: the other side has not proved who it is, or the link has ended */
};

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
	uint64_t connections; /* that were accepted */
	pthread_t thread;
	bool listening;
	atomic_bool ending;
	pthread_mutex_t lock;
	struct place places[PEER_SERVE_MAX];
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

static void show_link(struct place *place, struct link *link)
{
	pthread_mutex_lock(&place->serve->lock);
	place->link = link;
	if (link && atomic_load(&place->serve->ending))
		link_interrupt(link);
	pthread_mutex_unlock(&place->serve->lock);
}

static void serve_node(struct place *place, struct link *link)
{
	struct peer_serve *serve = place->serve;
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
static void *serve_one(void *user_data)
{
	struct place *place = user_data;
	int fd = fcntl(place->fd, F_DUPFD_CLOEXEC, 0);
	struct error unused;
	struct link *link;

	if (fd >= 0 && link_accept(place->serve->keys, fd, LINK_HANDSHAKE_MS, &link, &unused) == 0) {
		show_link(place, link);
		serve_node(place, link);
		show_link(place, NULL);
		link_close(link);
	}
	pthread_mutex_lock(&place->serve->lock);
	close(place->fd);
	place->fd = -1;
	pthread_mutex_unlock(&place->serve->lock);
	atomic_store(&place->ended, true);
	return NULL;
}

static void empty(struct place *place)
{
	pthread_join(place->thread, NULL);
	place->used = false;
}

/* Takes a place whose thread has ended, or that nobody had. Returns NULL if there is none. */
static struct place *free_place(struct peer_serve *serve)
{
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++) {
		struct place *place = &serve->places[i];

		if (place->used && !atomic_load(&place->ended))
			continue;
		if (place->used)
			empty(place);
		return place;
	}
	return NULL;
}

/* A node proves who it is within milliseconds. So whoever has been silent for the longest time makes room for a newcomer. Returns its place, or
 * NULL if all have proved who they are. */
static struct place *take_from_stranger(struct peer_serve *serve)
{
	struct place *oldest = NULL;

	pthread_mutex_lock(&serve->lock);
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++) {
		struct place *place = &serve->places[i];

		if (!place->link && place->fd >= 0 && (!oldest || place->number < oldest->number))
			oldest = place;
	}
	if (oldest)
		shutdown(oldest->fd, SHUT_RDWR);
	pthread_mutex_unlock(&serve->lock);
	if (oldest)
		empty(oldest);
	return oldest;
}

static void serve_new(struct peer_serve *serve, int fd)
{
	struct place *place = free_place(serve);

	if (!place)
		place = take_from_stranger(serve);
	if (!place) {
		close(fd);
		return;
	}
	place->serve = serve;
	place->fd = fd;
	place->number = serve->connections++;
	atomic_store(&place->ended, false);
	place->used = pthread_create(&place->thread, NULL, serve_one, place) == 0;
	if (place->used)
		return;
	place->fd = -1;
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
	pthread_mutex_init(&serve->lock, NULL);
	peer_serve_describe(serve);
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++)
		serve->places[i].fd = -1;
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
	unsigned count = 0;

	pthread_mutex_lock(&serve->lock);
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++)
		count += serve->places[i].link != NULL;
	pthread_mutex_unlock(&serve->lock);
	return count;
}

struct peer_serve *peer_serve_end(struct peer_serve *serve)
{
	if (!serve)
		return NULL;
	atomic_store(&serve->ending, true);
	if (serve->listening)
		pthread_join(serve->thread, NULL);
	pthread_mutex_lock(&serve->lock);
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++) {
		if (serve->places[i].link)
			link_interrupt(serve->places[i].link);
		else if (serve->places[i].fd >= 0)
			shutdown(serve->places[i].fd, SHUT_RDWR);
	}
	pthread_mutex_unlock(&serve->lock);
	for (unsigned i = 0; i < PEER_SERVE_MAX; i++) {
		if (serve->places[i].used)
			pthread_join(serve->places[i].thread, NULL);
	}
	if (serve->listener >= 0)
		close(serve->listener);
	takers_free(serve->takers);
	pthread_mutex_destroy(&serve->lock);
	free(serve);
	return NULL;
}
