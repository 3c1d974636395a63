/* TLS as a transport, between every two nodes: pieces go over a few connections of their own, the lanes, in chunks. The taker opens them to the
 * port where it found the server, so that no other port is needed, and both sides of each prove who they are, as on every link. The first
 * request of a lane has a secret, which the server told in the take's own connection and which is this transport's address.
 *
 *   the server  the thread of listener.c that has the connection sends the next chunk that is to be sent (tls_lane_run)
 *   the taker   a thread for each lane receives what comes, into the memory of the message with its tag
 *
 * All lanes share a piece, so that the first one is whole as early as with a single connection: the next taker of a chain waits for it.
 *
 * The thread that has the wire posts messages, and looks which of them are done. */
#include "wire_tls.h"

#include "exchange.h"

#include <endian.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/crypto.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>

#define SECRET_BYTES 32
/* A lane sends and receives 1 to 3 GB/s on one core of either side, encrypted; 8 of them 100 Gbit/s. */
#define LANES_MAX 8
/* A message of TLS has 16 KiB. A lane of 50 MB/s needs 5 ms for a chunk. */
#define CHUNK_BYTES KIB(256)
#define PROGRAM "gpuwm-loader " GPUWM_VERSION

enum progress { FREE, UNDER_WAY, DONE };

/* A message on its way. */
struct posting {
	enum progress progress;
	uint64_t number; /* the oldest one goes first */
	struct wire_piece piece;
	struct wire_message *message;
	uint64_t begun,
		moved; /* bytes that lanes have, and have had. It is done when both are as large as the piece, or equal after an error */
	int result;
};

struct tls_lane {
	struct wire_tls *wire;
	struct link *link; /* NULL: none, or it may not be interrupted any more */
	bool used;
	bool open; /* pieces go over it */
};

struct wire_tls {
	struct wire wire;
	struct wire_tls *next; /* of `wires_open` */
	uint8_t secret[SECRET_BYTES];
	/* What a lane needs to connect. */
	struct peer_keys *keys;
	char host[PEER_HOST_BYTES_MAX + 1], name[PEER_HOST_BYTES_MAX + 1], *server_secret;
	unsigned port;
	bool clear;
	pthread_t threads[LANES_MAX]; /* the taker's */
	unsigned thread_count;
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	bool ending;
	struct tls_lane lanes[LANES_MAX];
	struct posting postings[WIRE_MESSAGES_MAX];
	uint64_t posted;
	struct error failed; /* code 0: it works */
};

/* What is sent before each chunk. */
struct header {
	uint64_t tag, offset, bytes;
};

static pthread_mutex_t wires_lock = PTHREAD_MUTEX_INITIALIZER;
static struct wire_tls *wires_open; /* of this process: a lane finds its own among them */

static struct wire_tls *tls_of(const struct wire *wire)
{
	return (struct wire_tls *)wire;
}

/* ---- the lanes of a wire, which is locked ----------------------------------- */

static unsigned lanes_count(const struct wire_tls *wire, bool open)
{
	unsigned count = 0;

	for (unsigned i = 0; i < LANES_MAX; i++)
		count += wire->lanes[i].used && (wire->lanes[i].open || !open);
	return count;
}

/* Takes a free place. Returns NULL if there is none. */
static struct tls_lane *lane_take(struct wire_tls *wire, struct link *link)
{
	for (unsigned i = 0; i < LANES_MAX; i++) {
		if (wire->lanes[i].used)
			continue;
		wire->lanes[i] = (struct tls_lane){.wire = wire, .link = link, .used = true};
		return &wire->lanes[i];
	}
	return NULL;
}

/* The oldest message of which some bytes were not begun, of those with the tag. tag NULL: of all. */
static struct posting *posting_next(struct wire_tls *wire, const uint64_t *tag)
{
	struct posting *next = NULL;

	for (unsigned i = 0; i < WIRE_MESSAGES_MAX; i++) {
		struct posting *posting = &wire->postings[i];

		if (posting->progress == UNDER_WAY && posting->result == 0 &&
		    posting->begun < posting->piece.bytes && (!tag || posting->piece.tag == *tag) &&
		    (!next || posting->number < next->number))
			next = posting;
	}
	return next;
}

/* Notes the end of a chunk. No lane touches the memory of a message that is done: all that was begun has ended. */
static void posting_moved(struct posting *posting, uint64_t bytes, int r)
{
	posting->moved += bytes;
	if (r < 0)
		posting->result = -ECONNRESET;
	if (posting->moved == posting->begun && (posting->begun == posting->piece.bytes || posting->result < 0))
		posting->progress = DONE;
}

/* ---- the server's lanes ------------------------------------------------------ */

/* The taker has told its own address, too: on a lane of its wire the memory that is to be filled would go out. */
static bool gives_lanes(const struct wire_tls *wire, const void *secret)
{
	return CRYPTO_memcmp(wire->secret, secret, SECRET_BYTES) == 0 && wire->wire.serves;
}

struct tls_lane *tls_lane_enter(const char *secret, struct link *link)
{
	const int chunk = CHUNK_BYTES;
	struct tls_lane *lane = NULL;
	struct error unused;
	void *bytes = NULL;
	size_t count = 0;

	if (wire_bytes(secret, &bytes, &count, &unused) < 0)
		return NULL;
	pthread_mutex_lock(&wires_lock);
	for (struct wire_tls *wire = wires_open; wire && count == SECRET_BYTES && !lane; wire = wire->next) {
		if (!gives_lanes(wire, bytes))
			continue;
		pthread_mutex_lock(&wire->lock);
		lane = wire->ending ? NULL : lane_take(wire, link);
		pthread_mutex_unlock(&wire->lock);
	}
	pthread_mutex_unlock(&wires_lock);
	free(bytes);
	/* A slow line's queue is short: what comes last in it would hold up a piece whose other chunks are there. */
	if (lane)
		setsockopt(link_fd(link), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &chunk, sizeof(chunk));
	return lane;
}

static int send_chunk(struct link *link, const struct wire_piece *piece, uint64_t offset, uint64_t bytes)
{
	const struct header header = {htole64(piece->tag), htole64(offset), htole64(bytes)};
	struct error unused;
	int r = link_write(link, &header, sizeof(header), LINK_SILENCE_MS, &unused);

	return r < 0 ? r
		     : link_write(link, (const char *)piece->data + offset, bytes, LINK_SILENCE_MS, &unused);
}

void tls_lane_run(struct tls_lane *lane, bool answered)
{
	struct wire_tls *wire = lane->wire;
	struct link *link = lane->link;

	pthread_mutex_lock(&wire->lock);
	lane->open = answered;
	while (lane->open && !wire->ending) {
		struct posting *posting = posting_next(wire, NULL);
		uint64_t offset, bytes;
		int r;

		if (!posting) {
			pthread_cond_wait(&wire->changed, &wire->lock);
			continue;
		}
		offset = posting->begun;
		bytes = posting->piece.bytes - offset < CHUNK_BYTES ? posting->piece.bytes - offset
								    : CHUNK_BYTES;
		posting->begun += bytes;
		pthread_mutex_unlock(&wire->lock);
		r = send_chunk(link, &posting->piece, offset, bytes);
		pthread_mutex_lock(&wire->lock);
		posting_moved(posting, bytes, r);
		lane->open = r == 0;
	}
	/* wire_tls_settle waits for it. */
	lane->used = false;
	pthread_cond_broadcast(&wire->changed);
	pthread_mutex_unlock(&wire->lock);
}

/* ---- the taker's lanes ------------------------------------------------------- */

/* Makes the connection a lane, which wire_tls_settle can interrupt. */
static int lane_connect(struct tls_lane *lane, struct link **ret, struct error *error)
{
	struct wire_tls *wire = lane->wire;
	const struct link_target target = {wire->host, wire->port, wire->name[0] ? wire->name : NULL};
	const struct peer_lane_params params = {wire->server_secret, wire->clear};
	struct peer_hello_result hello;
	struct peer_lane_result result;
	struct peer_message message;
	int r = link_connect(wire->keys, &target, LINK_HANDSHAKE_MS, ret, error);

	if (r < 0)
		return r;
	pthread_mutex_lock(&wire->lock);
	lane->link = *ret;
	if (wire->ending)
		link_interrupt(*ret);
	pthread_mutex_unlock(&wire->lock);
	r = peer_greet(*ret, PROGRAM, &hello, &message, error);
	if (r < 0)
		return r;
	peer_message_clear(&message);
	r = peer_call(*ret, &form_peer_lane, &params, &result, &message, error);
	if (r < 0)
		return r;
	if (result.clear && wire->clear)
		link_clear(*ret);
	else if (result.clear)
		r = error_set(error, -EPROTO, NULL,
			      "%s wants to send without TLS, which this node did not allow", link_peer(*ret));
	peer_message_clear(&message);
	return r;
}

/* The message for which a chunk comes. Returns NULL if none waits for it: it was never wanted, or all of it has come, or the piece has another size. */
static struct posting *posting_for(struct wire_tls *wire, const struct header *header)
{
	struct posting *posting;

	pthread_mutex_lock(&wire->lock);
	posting = posting_next(wire, &header->tag);
	if (posting && header->bytes > 0 && header->offset < posting->piece.bytes &&
	    header->bytes <= posting->piece.bytes - header->offset &&
	    header->bytes <= posting->piece.bytes - posting->begun)
		posting->begun += header->bytes;
	else if (posting) {
		posting_moved(posting, 0, -EIO);
		posting = NULL;
	}
	pthread_mutex_unlock(&wire->lock);
	return posting;
}

static int receive_chunk(struct wire_tls *wire, struct link *link, struct error *error)
{
	struct posting *posting;
	struct header header = {0};
	int r = link_read(link, &header, sizeof(header), INBOX_WAIT_MS, error);

	if (r < 0)
		return r;
	header = (struct header){le64toh(header.tag), le64toh(header.offset), le64toh(header.bytes)};
	posting = posting_for(wire, &header);
	if (!posting)
		return error_set(error, -EPROTO, NULL, "%s sent %llu bytes that were not wanted",
				 link_peer(link), (unsigned long long)header.bytes);
	r = link_read(link, (char *)posting->piece.data + header.offset, header.bytes, LINK_SILENCE_MS, error);
	pthread_mutex_lock(&wire->lock);
	posting_moved(posting, header.bytes, r);
	pthread_mutex_unlock(&wire->lock);
	return r;
}

/* A lane that broke ends the wire. One that never opened does so only if no other one is left: the server may have no more places. */
static void lane_failed(struct tls_lane *lane, const struct error *error)
{
	struct wire_tls *wire = lane->wire;

	pthread_mutex_lock(&wire->lock);
	lane->used = false;
	lane->link = NULL;
	if (!wire->ending && wire->failed.code == 0 && (lane->open || lanes_count(wire, false) == 0)) {
		wire->failed = *error;
		if (error->code == -ENOENT) /* the take is not there any more: the version may be */
			wire->failed.code = -ECONNRESET;
	}
	pthread_mutex_unlock(&wire->lock);
}

static void *lane_receive(void *user_data)
{
	struct tls_lane *lane = user_data;
	struct wire_tls *wire = lane->wire;
	struct link *link = NULL;
	struct error error;
	int r = lane_connect(lane, &link, &error);

	if (r == 0) {
		pthread_mutex_lock(&wire->lock);
		lane->open = true;
		pthread_mutex_unlock(&wire->lock);
	}
	while (r == 0)
		r = receive_chunk(wire, link, &error);
	lane_failed(lane, &error);
	link_close(link);
	return NULL;
}

/* Copies what the lanes need. It stays as it is as long as they live. */
static int note_server(struct wire_tls *wire, const struct wire_meeting *meeting, struct error *error)
{
	if (meeting->bytes != SECRET_BYTES)
		return error_set(error, -EBADMSG, NULL, "%zu bytes are no secret of a take", meeting->bytes);
	wire->server_secret = wire_text(meeting->address, meeting->bytes);
	if (!wire->server_secret)
		return error_set(error, -ENOMEM, NULL, "no memory for connections by TLS");
	wire->keys = peer_keys_hold(meeting->keys);
	wire->clear = meeting->clear;
	wire->port = meeting->target->port;
	snprintf(wire->host, sizeof(wire->host), "%s", meeting->target->host);
	snprintf(wire->name, sizeof(wire->name), "%s", meeting->target->name ? meeting->target->name : "");
	return 0;
}

static int dial(struct wire_tls *wire, const struct wire_meeting *meeting, struct error *error)
{
	unsigned count = meeting->lanes < LANES_MAX ? meeting->lanes : LANES_MAX;
	struct tls_lane *lanes[LANES_MAX];
	int r = note_server(wire, meeting, error);

	if (r < 0)
		return r;
	/* All are there before the first one can fail. */
	for (unsigned i = 0; i < count; i++)
		lanes[i] = lane_take(wire, NULL);
	for (unsigned i = 0; i < count; i++) {
		r = pthread_create(&wire->threads[wire->thread_count], NULL, lane_receive, lanes[i]);
		if (r == 0) {
			wire->thread_count++;
			continue;
		}
		error_set(error, -EAGAIN, NULL, "no thread can be made for a connection: %s", strerror(r));
		lane_failed(lanes[i], error);
	}
	return wire->thread_count > 0 ? 0 : -EAGAIN;
}

/* ---- the wire ---------------------------------------------------------------- */

static int wire_tls_open(struct wire **ret, struct error *error)
{
	struct wire_tls *wire = calloc(1, sizeof(*wire));

	if (!wire)
		return error_set(error, -ENOMEM, NULL, "no memory for connections by TLS");
	if (getrandom(wire->secret, SECRET_BYTES, 0) != SECRET_BYTES) {
		free(wire);
		return error_set(error, -EIO, NULL, "the kernel gave no random number");
	}
	pthread_mutex_init(&wire->lock, NULL);
	pthread_cond_init(&wire->changed, NULL);
	pthread_mutex_lock(&wires_lock);
	wire->next = wires_open;
	wires_open = wire;
	pthread_mutex_unlock(&wires_lock);
	*ret = &wire->wire;
	return 0;
}

/* No lane enters any more, and all leave: nobody uses the memory of a message then. */
static bool wire_tls_settle(struct wire *base)
{
	struct wire_tls *wire = tls_of(base);

	pthread_mutex_lock(&wire->lock);
	wire->ending = true;
	for (unsigned i = 0; i < LANES_MAX; i++) {
		if (wire->lanes[i].used && wire->lanes[i].link)
			link_interrupt(wire->lanes[i].link);
	}
	pthread_cond_broadcast(&wire->changed);
	while (wire->thread_count == 0 && lanes_count(wire, false) > 0)
		pthread_cond_wait(&wire->changed, &wire->lock);
	pthread_mutex_unlock(&wire->lock);
	while (wire->thread_count > 0)
		pthread_join(wire->threads[--wire->thread_count], NULL);
	while (base->message_count > 0)
		wire_message_end(base, base->messages[0], -ECANCELED);
	return true;
}

static void wire_tls_free(struct wire *base)
{
	struct wire_tls *wire = tls_of(base), **at = &wires_open;

	pthread_mutex_lock(&wires_lock);
	while (*at != wire)
		at = &(*at)->next;
	*at = wire->next;
	pthread_mutex_unlock(&wires_lock);
	peer_keys_release(wire->keys);
	free(wire->server_secret);
	pthread_cond_destroy(&wire->changed);
	pthread_mutex_destroy(&wire->lock);
	free(wire);
}

static const void *wire_tls_address(const struct wire *wire, size_t *ret_bytes)
{
	*ret_bytes = SECRET_BYTES;
	return tls_of(wire)->secret;
}

static int wire_tls_state(const struct wire *base, struct error *error)
{
	struct wire_tls *wire = tls_of(base);
	int r;

	pthread_mutex_lock(&wire->lock);
	r = wire->failed.code;
	if (r < 0 && error)
		*error = wire->failed;
	pthread_mutex_unlock(&wire->lock);
	return r;
}

/* One lane is enough to begin. */
static int wire_tls_meet(struct wire *base, const struct wire_meeting *meeting, struct error *error)
{
	struct wire_tls *wire = tls_of(base);
	int r = base->serves || wire->keys ? wire_tls_state(base, error) : dial(wire, meeting, error);
	bool met;

	pthread_mutex_lock(&wire->lock);
	met = lanes_count(wire, true) > 0;
	pthread_mutex_unlock(&wire->lock);
	return r < 0 ? r : !met;
}

/* ---- messages ---------------------------------------------------------------- */

static int post(struct wire *base, const struct wire_piece *piece, struct wire_message *message,
		struct error *error)
{
	struct wire_tls *wire = tls_of(base);
	unsigned i = 0;

	(void)error;
	wire_message_begun(base, message);
	pthread_mutex_lock(&wire->lock);
	while (wire->postings[i].progress != FREE) /* wire.c counts them */
		i++;
	wire->postings[i] = (struct posting){UNDER_WAY, wire->posted++, *piece, message, 0, 0, 0};
	pthread_cond_broadcast(&wire->changed);
	pthread_mutex_unlock(&wire->lock);
	return 0;
}

static bool wire_tls_work(struct wire *base)
{
	struct wire_tls *wire = tls_of(base);
	bool worked = false;

	pthread_mutex_lock(&wire->lock);
	for (unsigned i = 0; i < WIRE_MESSAGES_MAX; i++) {
		struct posting *posting = &wire->postings[i];

		if (posting->progress != DONE)
			continue;
		wire_message_end(base, posting->message, posting->result);
		posting->progress = FREE;
		worked = true;
	}
	pthread_mutex_unlock(&wire->lock);
	return worked;
}

const struct wire_ops wire_tls = {
	.name = "tls",
	.title = "TLS",
	.remedy = "its gpuwm-peer may have no place for further connections",
	.open = wire_tls_open,
	.settle = wire_tls_settle,
	.free = wire_tls_free,
	.address = wire_tls_address,
	.meet = wire_tls_meet,
	.send = post,
	.receive = post,
	.work = wire_tls_work,
	.state = wire_tls_state,
};
