#include "wire_local.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define WIRES_OPEN_MAX 8
/* Of its own messages, and of those that its peer sends. */
#define ITEMS_MAX (2 * WIRE_MESSAGES_MAX)

struct local;

/* A message that waits for its other side, or whose sender has not heard yet that it was received. */
struct item {
	struct local *from; /* the wire whose message it is */
	struct wire_message *message;
	struct wire_piece piece;
	int result;
};

struct items {
	struct item items[ITEMS_MAX];
	unsigned count;
};

struct address {
	char magic[8];
	uint64_t number;
};

/* Other threads touch what is below the address, with the lock. */
struct local {
	struct wire wire;
	struct address address;
	struct local *peer; /* NULL: not connected, or gone */
	bool gone;
	struct items sent; /* to this wire */
	struct items wanted;
	struct items received; /* of what this wire sent */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct local *all[WIRES_OPEN_MAX];
static uint64_t last_number;

static struct local *local_of(struct wire *wire)
{
	return (struct local *)wire;
}

static void add(struct items *items, struct item item)
{
	if (items->count == ITEMS_MAX)
		abort();
	items->items[items->count++] = item;
}

static void drop(struct items *items, unsigned i)
{
	memmove(&items->items[i], &items->items[i + 1], (--items->count - i) * sizeof(items->items[0]));
}

static int local_open(struct wire **ret, struct error *error)
{
	struct local *local = calloc(1, sizeof(*local));
	int r = -EMFILE;

	pthread_mutex_lock(&lock);
	local->address = (struct address){"local", ++last_number};
	for (unsigned i = 0; r < 0 && i < WIRES_OPEN_MAX; i++) {
		if (all[i])
			continue;
		all[i] = local;
		r = 0;
	}
	pthread_mutex_unlock(&lock);
	if (r < 0) {
		free(local);
		return error_set(error, r, NULL, "%d wires are open already", WIRES_OPEN_MAX);
	}
	*ret = &local->wire;
	return 0;
}

static const void *local_address(const struct wire *wire, size_t *ret_bytes)
{
	*ret_bytes = sizeof(struct address);
	return &((const struct local *)wire)->address;
}

static int local_meet(struct wire *wire, const struct wire_meeting *meeting, struct error *error)
{
	const void *address = meeting->address;
	size_t bytes = meeting->bytes;
	struct local *local = local_of(wire);

	if (bytes != sizeof(struct address))
		return error_set(error, -EBADMSG, NULL, "%zu bytes are no address in this process", bytes);
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < WIRES_OPEN_MAX; i++) {
		if (all[i] && memcmp(&all[i]->address, address, bytes) == 0)
			local->peer = all[i];
	}
	pthread_mutex_unlock(&lock);
	return local->peer ? 0 : error_set(error, -EHOSTUNREACH, NULL, "there is no such wire");
}

static int local_send(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
		      struct error *error)
{
	struct local *local = local_of(wire);

	(void)error;
	wire_message_begun(wire, message);
	pthread_mutex_lock(&lock);
	if (local->peer)
		add(&local->peer->sent, (struct item){local_of(wire), message, *piece, 0});
	else
		add(&local->received, (struct item){local, message, *piece, -ECONNRESET});
	pthread_mutex_unlock(&lock);
	return 0;
}

static int local_receive(struct wire *wire, const struct wire_piece *piece, struct wire_message *message,
			 struct error *error)
{
	(void)error;
	wire_message_begun(wire, message);
	pthread_mutex_lock(&lock);
	add(&local_of(wire)->wanted, (struct item){local_of(wire), message, *piece, 0});
	pthread_mutex_unlock(&lock);
	return 0;
}

/* Receives the first message that was sent with the tag. Returns whether there was one. */
static bool receive(struct local *local, const struct item *wanted)
{
	unsigned i = 0;

	while (i < local->sent.count && local->sent.items[i].piece.tag != wanted->piece.tag)
		i++;
	if (i == local->sent.count)
		return false;
	if (local->sent.items[i].piece.bytes <= wanted->piece.bytes)
		memcpy(wanted->piece.data, local->sent.items[i].piece.data, local->sent.items[i].piece.bytes);
	wire_message_end(&local->wire, wanted->message,
			 local->sent.items[i].piece.bytes <= wanted->piece.bytes ? 0 : -EIO);
	add(&local->sent.items[i].from->received, local->sent.items[i]);
	drop(&local->sent, i);
	return true;
}

static bool local_work(struct wire *wire)
{
	struct local *local = local_of(wire);
	bool worked = false;

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < local->wanted.count;) {
		if (!receive(local, &local->wanted.items[i])) {
			i++;
			continue;
		}
		drop(&local->wanted, i);
		worked = true;
	}
	for (; local->received.count > 0; drop(&local->received, 0)) {
		wire_message_end(wire, local->received.items[0].message, local->received.items[0].result);
		worked = true;
	}
	pthread_mutex_unlock(&lock);
	return worked;
}

static int local_state(const struct wire *wire, struct error *error)
{
	bool gone;

	pthread_mutex_lock(&lock);
	gone = ((const struct local *)wire)->gone;
	pthread_mutex_unlock(&lock);
	return gone ? error_set(error, -ECONNRESET, NULL, "the other wire was closed") : 0;
}

/* What this wire sent is received by nobody any more, and what was sent to it has failed. */
static bool local_settle(struct wire *wire)
{
	struct local *local = local_of(wire);

	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < WIRES_OPEN_MAX; i++) {
		struct local *other = all[i];

		for (unsigned k = 0; other && k < other->sent.count;) {
			if (other->sent.items[k].from == local)
				drop(&other->sent, k);
			else
				k++;
		}
		if (!other || other->peer != local)
			continue;
		other->peer = NULL;
		other->gone = true;
	}
	for (unsigned k = 0; k < local->sent.count; k++) {
		local->sent.items[k].result = -ECONNRESET;
		add(&local->sent.items[k].from->received, local->sent.items[k]);
	}
	local->peer = NULL;
	local->gone = true;
	local->sent.count = local->wanted.count = local->received.count = 0;
	while (wire->message_count > 0)
		wire_message_end(wire, wire->messages[0], -ECANCELED);
	pthread_mutex_unlock(&lock);
	return true;
}

static void local_free(struct wire *wire)
{
	pthread_mutex_lock(&lock);
	for (unsigned i = 0; i < WIRES_OPEN_MAX; i++) {
		if (all[i] == local_of(wire))
			all[i] = NULL;
	}
	pthread_mutex_unlock(&lock);
	free(wire);
}

const struct wire_ops wire_local = {
	.name = "local",
	.title = "this process",
	.remedy = "is the other side still there?",
	.open = local_open,
	.settle = local_settle,
	.free = local_free,
	.address = local_address,
	.meet = local_meet,
	.send = local_send,
	.receive = local_receive,
	.work = local_work,
	.state = local_state,
};
