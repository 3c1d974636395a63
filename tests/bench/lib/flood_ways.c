/* What each flood sends. */
#include "flooder.h"

#include <sched.h>
#include <sys/epoll.h>

#define HELD_LEASES 10000 /* of all processes together */
#define CAUSES 4 /* connections of a process that cause events */
#define CLAIMED_NAMES 16
#define WAITS_EACH 20 /* waiting requests of a connection */
#define OPEN_PUBLISHES 4
#define UNREAD_EACH 40 /* get_handles that a connection sends without reading */
#define CHURN_OPEN 1024 /* connections of a process in the backlog or beyond */

/* Maps of as many keys as may be, all short, and a text that fills the packet. */
static void prepare_costly(struct flooder *f)
{
	enum { MAPS = (MESSAGE_ELEMENTS_MAX - 64) / (1 + 2 * MESSAGE_MAP_MAX), FILLING = 50000 };
	struct message_writer w;
	char *filling = calloc(1, FILLING + 1);

	if (!filling)
		DIE("out of memory");
	memset(filling, 'x', FILLING);
	flooder_begin(&w, "ping");
	message_begin_array(&w, "maps");
	for (int map = 0; map < MAPS; map++) {
		message_begin_map(&w, NULL);
		for (int key = 0; key < MESSAGE_MAP_MAX; key++) {
			char text[3];

			snprintf(text, sizeof(text), "%02x", key);
			message_put_u64(&w, text, 1);
		}
		message_end(&w);
	}
	message_end(&w);
	message_put_text(&w, "filling", filling);
	message_end(&w);
	if (message_finish(&w) < 0)
		DIE("the costly packet does not fit");
	free(filling);
	f->costly_bytes = w.buffer.size;
	f->costly = (uint8_t *)msgpack_sbuffer_release(&w.buffer);
	message_writer_clear(&w);
}

static void next_costly(struct flooder *f, struct connection *c, const struct message *reply)
{
	(void)reply;
	flooder_send(c, f->costly, f->costly_bytes);
}

static void next_status(struct flooder *f, struct connection *c, const struct message *reply)
{
	(void)f, (void)reply;
	flooder_send_empty(c, "status");
}

static void next_list(struct flooder *f, struct connection *c, const struct message *reply)
{
	(void)f, (void)reply;
	flooder_send_empty(c, "list");
}

static void next_lease(struct flooder *f, struct connection *c, const struct message *reply)
{
	uint64_t lease = flooder_number(reply, "lease");

	if (lease)
		flooder_send_release(c, lease);
	else
		flooder_send_get_handles(f, c);
}

static void prepare_leases(struct flooder *f)
{
	unsigned leases = HELD_LEASES / f->settings->processes;

	for (unsigned i = 0; i < leases; i++) {
		struct connection *c = &f->connections[i % f->count];

		flooder_send_get_handles(f, c);
		flooder_ask(f, c);
	}
}

/* A session with a lease that ends is an event for all who subscribed. */
static void cause_event(struct flooder *f, struct connection *c, const struct message *reply)
{
	if (reply && c->step++ == 0)
		return; /* to hello */
	if (reply) {
		close(c->sock);
		c->sock = connect_to(f->settings->socket);
		flooder_watch(f, c);
		c->step = 0;
		flooder_send_hello(c);
	}
	flooder_send_get_handles(f, c);
}

static void prepare_subscribers(struct flooder *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		f->connections[i].step = 1; /* its hello is answered */
		if (i < CAUSES)
			continue;
		flooder_send_empty(&f->connections[i], "subscribe");
		flooder_ask(f, &f->connections[i]);
	}
}

static bool is_cause(const struct flooder *f, const struct connection *c)
{
	return c - f->connections < CAUSES;
}

static void next_subscriber(struct flooder *f, struct connection *c, const struct message *reply)
{
	if (is_cause(f, c))
		cause_event(f, c, reply);
}

static void next_deaf_subscriber(struct flooder *f, struct connection *c, const struct message *reply)
{
	if (is_cause(f, c))
		cause_event(f, c, reply);
	else if (!reply)
		epoll_ctl(f->epoll, EPOLL_CTL_DEL, c->sock, NULL);
}

/* All of those who claim a name wait for the one who has it. */
static void next_claim(struct flooder *f, struct connection *c, const struct message *reply)
{
	bool has = reply && !reply->error.code && c->step == 1;
	struct message_writer w;
	char name[32];

	snprintf(name, sizeof(name), "claimed@%ld", (c - f->connections) % CLAIMED_NAMES);
	flooder_begin(&w, has ? "claim_give_up" : "claim");
	message_put_text(&w, "name", name);
	if (!has)
		message_put_i64(&w, "wait_ms", -1);
	flooder_send_written(c, &w);
	c->step = !has;
}

static void send_publish_begin(struct flooder *f, struct connection *c)
{
	struct message_writer w;
	char name[64];

	snprintf(name, sizeof(name), "published@%u.%ld.%u", f->process, c - f->connections, c->number++);
	flooder_begin(&w, "publish_begin");
	message_put_text(&w, "name", name);
	message_put_text(&w, "device", "host");
	message_put_u64(&w, "bytes", 4096);
	flooder_send_written(c, &w);
}

static void next_publish(struct flooder *f, struct connection *c, const struct message *reply)
{
	struct fields fields;
	uint8_t id[16];
	struct message_writer w;

	fields_of(&fields, reply ? reply->body : NULL);
	if (!fields_have(&fields, "publish")) {
		send_publish_begin(f, c);
		return;
	}
	if (c - f->connections < OPEN_PUBLISHES / 2)
		return; /* stays open */
	fields_hex128(&fields, "publish", id);
	flooder_begin(&w, "publish_abort");
	message_put_hex128(&w, "publish", id);
	flooder_send_written(c, &w);
}

static void send_wait(const struct connection *c)
{
	struct message_writer w;

	flooder_begin(&w, "get_handles");
	message_put_text(&w, "ref", "published@never");
	message_put_i64(&w, "wait_ms", -1);
	flooder_send_written(c, &w);
}

/* Versions that fail wake everybody who waits for one. */
static void next_waiter(struct flooder *f, struct connection *c, const struct message *reply)
{
	if (is_cause(f, c))
		next_publish(f, c, reply);
	for (int i = 0; !reply && !is_cause(f, c) && i < WAITS_EACH; i++)
		send_wait(c);
}

/* Asks for what is not there, in a model that is: the error lists what there is. */
static void next_unknown(struct flooder *f, struct connection *c, const struct message *reply)
{
	struct message_writer w;

	(void)f, (void)reply;
	flooder_begin(&w, "get_handles");
	message_put_text(&w, "ref", "good@unknown");
	flooder_send_written(c, &w);
}

/* No connection reads its replies: gpuwmd keeps the replies, and the kernel keeps the descriptors. */
static void run_unread(struct flooder *f)
{
	for (unsigned i = 0;; i = (i + 1) % f->count) {
		struct connection *c = &f->connections[i];

		close(c->sock);
		c->sock = connect_to(f->settings->socket);
		flooder_send_hello(c);
		for (int n = 0; n < UNREAD_EACH; n++)
			flooder_send_get_handles(f, c);
		++*f->done;
	}
}

static int connect_at_once(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (sock < 0)
		DIE("socket: %s", strerror(errno));
	if (connect(sock, (struct sockaddr *)&address, sizeof(address)) == 0)
		return sock;
	close(sock);
	return -1;
}

/* As many new connections as the backlog takes, the oldest closed for each. */
static void run_churn(struct flooder *f)
{
	int open[CHURN_OPEN];

	memset(open, 0xff, sizeof(open));
	for (unsigned i = 0;; i = (i + 1) % CHURN_OPEN) {
		if (open[i] >= 0)
			close(open[i]);
		open[i] = connect_at_once(f->settings->socket);
		if (open[i] < 0)
			sched_yield();
		else
			++*f->done;
	}
}

#define WAY(...) (&(struct flood_way){__VA_ARGS__})
const struct flood floods[] = {
	{"packets", "costliest packets", WAY(.prepare = prepare_costly, .next = next_costly)},
	{"status", "status", WAY(.next = next_status)},
	{"list", "list", WAY(.next = next_list)},
	{"unknown", "get_handles of what is not there", WAY(.next = next_unknown)},
	{"leases", "leases taken and released", WAY(.next = next_lease)},
	{"held", "the same beside 10,000 held", WAY(.prepare = prepare_leases, .next = next_lease)},
	{"unread", "get_handles, replies not read", WAY(.run = run_unread)},
	{"events", "subscriptions, events read", WAY(.prepare = prepare_subscribers, .next = next_subscriber)},
	{"deaf", "subscriptions, events not read",
	 WAY(.prepare = prepare_subscribers, .next = next_deaf_subscriber)},
	{"claims", "claims taken and given up", WAY(.next = next_claim)},
	{"publishes", "publishes begun and aborted", WAY(.next = next_publish)},
	{"waiters", "the same beside requests that wait", WAY(.next = next_waiter)},
	{"churn", "connect and close", WAY(.run = run_churn)},
};
const size_t flood_count = sizeof(floods) / sizeof(*floods);

const struct flood *flood_find(const char *name)
{
	for (size_t i = 0; i < flood_count; i++)
		if (strcmp(floods[i].name, name) == 0)
			return &floods[i];
	return NULL;
}
