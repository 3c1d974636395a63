#include "flood.h"

#include "../bench.h"

#include <grp.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#define OPEN_MS 120000
#define RETRY_US 1000
#define BATCH 256
#define HELD_LEASES 10000 /* of all processes together */
#define CAUSES 4 /* connections of a process that cause events */
#define CLAIMED_NAMES 16
#define WAITS_EACH 20 /* waiting requests of a connection */
#define OPEN_PUBLISHES 4
#define UNREAD_EACH 40 /* get_handles that a connection sends without reading */
#define CHURN_OPEN 1024 /* connections of a process in the backlog or beyond */

struct connection {
	int sock;
	unsigned step, number;
};

struct flooder {
	const struct flood_settings *settings;
	const struct flood_way *way;
	struct connection *connections;
	unsigned process, count;
	uint64_t *done;
	int epoll;
	struct packet packet;
	uint8_t *costly; /* a request */
	size_t costly_bytes;
};

/* How a flood goes on. reply NULL: at the start, and after the connection was opened anew. */
struct flood_way {
	void (*prepare)(struct flooder *f); /* optional: what is held from the start */
	void (*next)(struct flooder *f, struct connection *c, const struct message *reply);
	void (*run)(struct flooder *f); /* in place of next: all of it */
};

void become(uid_t uid, gid_t gid)
{
	if (setgroups(0, NULL) < 0 || setgid(gid) < 0 || setuid(uid) < 0)
		DIE("becoming user %u: %s", (unsigned)uid, strerror(errno));
	prctl(PR_SET_PDEATHSIG, SIGKILL); /* a change of the uid clears it */
}

/* ---- requests ---- */

/* gpuwmd may have ended the connection: the end is read then. */
static void send_bytes(const struct connection *c, const void *data, size_t bytes)
{
	packet_send(c->sock, data, bytes, NULL, 0);
}

static void send_written(const struct connection *c, struct message_writer *w)
{
	message_end(w);
	if (message_finish(w) < 0)
		DIE("a request does not fit");
	send_bytes(c, w->buffer.data, w->buffer.size);
	message_writer_clear(w);
}

static void begin(struct message_writer *w, const char *method)
{
	message_writer_init(w, PACKET_BYTES_MAX);
	message_request(w, REQUEST_ID, method);
}

static void send_empty(const struct connection *c, const char *method)
{
	struct message_writer w;

	begin(&w, method);
	send_written(c, &w);
}

static void send_get_handles(const struct flooder *f, const struct connection *c)
{
	struct request request;

	request_get_handles(f->settings->ref, &request);
	send_bytes(c, request.data, request.bytes);
}

static void send_release(const struct connection *c, uint64_t lease)
{
	struct request request;

	request_release(lease, &request);
	send_bytes(c, request.data, request.bytes);
}

static void send_hello(const struct connection *c)
{
	struct request request;

	request_hello(&request);
	send_bytes(c, request.data, request.bytes);
}

/* The result's number; 0: it has none. */
static uint64_t number_of(const struct message *reply, const char *key)
{
	struct fields fields;

	if (!reply || reply->error.code)
		return 0;
	fields_of(&fields, reply->body);
	return fields_u64_or(&fields, key, 0);
}

/* ---- connections ---- */

static bool wait_readable(int sock, int ms)
{
	struct pollfd ready = {.fd = sock, .events = POLLIN};

	return poll(&ready, 1, ms) == 1;
}

/* A connection after its hello; -1: gpuwmd did not take it. */
static int try_open(struct flooder *f)
{
	struct message message = {0};
	struct connection c = {.sock = connect_to(f->settings->socket)};
	const char *why;
	bool taken;

	send_hello(&c);
	taken = wait_readable(c.sock, OPEN_MS) && packet_receive(c.sock, true, &f->packet) == 1 &&
		message_read(f->packet.data, f->packet.bytes, &message, &why) == 0 && !message.error.code;
	message_clear(&message);
	if (taken)
		return c.sock;
	close(c.sock);
	return -1;
}

/* gpuwmd may refuse more than so many at a time. */
static int open_patiently(struct flooder *f)
{
	double give_up = now_us() + OPEN_MS * 1e3;
	int sock;

	while ((sock = try_open(f)) < 0) {
		if (now_us() > give_up)
			DIE("gpuwmd does not take connection after connection");
		usleep(RETRY_US);
	}
	return sock;
}

static void watch(struct flooder *f, struct connection *c)
{
	struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)(c - f->connections)};

	if (epoll_ctl(f->epoll, EPOLL_CTL_ADD, c->sock, &event) < 0)
		DIE("epoll: %s", strerror(errno));
}

static void open_all(struct flooder *f)
{
	f->connections = calloc(f->count, sizeof(*f->connections));
	f->packet.data = malloc(PACKET_BYTES_MAX + 1);
	f->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (!f->connections || !f->packet.data || f->epoll < 0)
		DIE("out of memory");
	for (unsigned i = 0; i < f->count; i++)
		f->connections[i].sock = open_patiently(f);
}

/* The answer to a request that was sent before anything else was; NULL at the end of the connection. */
static bool ask_now(struct flooder *f, struct connection *c)
{
	bool answered = wait_readable(c->sock, OPEN_MS) && packet_receive(c->sock, true, &f->packet) == 1;

	packet_drop(&f->packet);
	return answered;
}

/* ---- the ways ---- */

/* Maps of as many keys as may be, all short, and a text that fills the packet. */
static void prepare_costly(struct flooder *f)
{
	enum { MAPS = (MESSAGE_ELEMENTS_MAX - 64) / (1 + 2 * MESSAGE_MAP_MAX), FILLING = 50000 };
	struct message_writer w;
	char *filling = calloc(1, FILLING + 1);

	if (!filling)
		DIE("out of memory");
	memset(filling, 'x', FILLING);
	begin(&w, METHOD_PING);
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
	send_bytes(c, f->costly, f->costly_bytes);
}

static void next_status(struct flooder *f, struct connection *c, const struct message *reply)
{
	(void)f, (void)reply;
	send_empty(c, METHOD_STATUS);
}

static void next_list(struct flooder *f, struct connection *c, const struct message *reply)
{
	(void)f, (void)reply;
	send_empty(c, METHOD_LIST);
}

static void next_lease(struct flooder *f, struct connection *c, const struct message *reply)
{
	uint64_t lease = number_of(reply, "lease");

	if (lease)
		send_release(c, lease);
	else
		send_get_handles(f, c);
}

static void prepare_leases(struct flooder *f)
{
	unsigned leases = HELD_LEASES / f->settings->processes;

	for (unsigned i = 0; i < leases; i++) {
		struct connection *c = &f->connections[i % f->count];

		send_get_handles(f, c);
		ask_now(f, c);
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
		watch(f, c);
		c->step = 0;
		send_hello(c);
	}
	send_get_handles(f, c);
}

static void prepare_subscribers(struct flooder *f)
{
	for (unsigned i = 0; i < f->count; i++) {
		f->connections[i].step = 1; /* its hello is answered */
		if (i < CAUSES)
			continue;
		send_empty(&f->connections[i], METHOD_SUBSCRIBE);
		ask_now(f, &f->connections[i]);
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
	begin(&w, has ? METHOD_CLAIM_GIVE_UP : METHOD_CLAIM);
	message_put_text(&w, "name", name);
	if (!has)
		message_put_i64(&w, "wait_ms", -1);
	send_written(c, &w);
	c->step = !has;
}

static void send_publish_begin(struct flooder *f, struct connection *c)
{
	struct message_writer w;
	char name[64];

	snprintf(name, sizeof(name), "published@%u.%ld.%u", f->process, c - f->connections, c->number++);
	begin(&w, METHOD_PUBLISH_BEGIN);
	message_put_text(&w, "name", name);
	message_put_text(&w, "device", "host");
	message_put_u64(&w, "bytes", 4096);
	send_written(c, &w);
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
	begin(&w, METHOD_PUBLISH_ABORT);
	message_put_hex128(&w, "publish", id);
	send_written(c, &w);
}

static void send_wait(const struct connection *c)
{
	struct message_writer w;

	begin(&w, METHOD_GET_HANDLES);
	message_put_text(&w, "ref", "published@never");
	message_put_i64(&w, "wait_ms", -1);
	send_written(c, &w);
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
	begin(&w, METHOD_GET_HANDLES);
	message_put_text(&w, "ref", "good@unknown");
	send_written(c, &w);
}

/* No connection reads its replies: gpuwmd keeps the replies, and the kernel keeps the descriptors. */
static void run_unread(struct flooder *f)
{
	for (unsigned i = 0;; i = (i + 1) % f->count) {
		struct connection *c = &f->connections[i];

		close(c->sock);
		c->sock = connect_to(f->settings->socket);
		send_hello(c);
		for (int n = 0; n < UNREAD_EACH; n++)
			send_get_handles(f, c);
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

/* ---- a process ---- */

static void reopen(struct flooder *f, struct connection *c)
{
	close(c->sock);
	c->sock = open_patiently(f);
	c->step = 0;
	watch(f, c);
	f->way->next(f, c, NULL);
}

static void on_readable(struct flooder *f, struct connection *c)
{
	struct message message;
	const char *why;

	if (packet_receive(c->sock, true, &f->packet) != 1) {
		reopen(f, c);
		return;
	}
	packet_drop(&f->packet);
	++*f->done;
	if (message_read(f->packet.data, f->packet.bytes, &message, &why) < 0)
		DIE("an answer that is none: %s", why);
	f->way->next(f, c, &message);
	message_clear(&message);
}

_Noreturn static void go_on(struct flooder *f)
{
	struct epoll_event events[BATCH];

	for (;;) {
		int n = epoll_wait(f->epoll, events, BATCH, -1);

		for (int i = 0; i < n; i++)
			on_readable(f, &f->connections[events[i].data.u32]);
	}
}

static void begin_flood(struct flooder *f)
{
	for (unsigned i = 0; f->way->next && i < f->count; i++) {
		watch(f, &f->connections[i]);
		f->way->next(f, &f->connections[i], NULL);
	}
}

_Noreturn static void burn(void)
{
	for (volatile unsigned n = 0;; n++)
		;
}

/* A flood that has begun would keep the other processes from opening theirs. */
static void wait_for_others(int sock)
{
	char byte = 0;

	if (send(sock, &byte, 1, MSG_NOSIGNAL) != 1 || recv(sock, &byte, 1, 0) != 1)
		_exit(1);
}

_Noreturn static void run_process(const struct flood *flood, const struct flood_settings *s, unsigned process,
				  uint64_t *done, int sock)
{
	struct flooder f = {.settings = s, .process = process, .done = done, .way = flood ? flood->way : NULL};

	become(s->uid, s->gid);
	signal(SIGPIPE, SIG_IGN);
	f.count = (process + 1) * s->connections / s->processes - process * s->connections / s->processes;
	open_all(&f);
	if (flood && flood->way->prepare)
		flood->way->prepare(&f);
	wait_for_others(sock);
	if (flood)
		begin_flood(&f);
	wait_for_others(sock);
	if (!flood)
		burn();
	if (f.way->run)
		f.way->run(&f);
	go_on(&f);
}

/* Lets all of them go on when each has come so far. */
static void gather(const int *socks, unsigned count)
{
	char byte = 0;

	for (unsigned i = 0; i < count; i++)
		if (recv(socks[i], &byte, 1, 0) != 1)
			DIE("a process of the flood has ended");
	for (unsigned i = 0; i < count; i++)
		if (send(socks[i], &byte, 1, MSG_NOSIGNAL) != 1)
			DIE("a process of the flood has ended");
}

struct flooders flooders_start(const struct flood *flood, const struct flood_settings *settings)
{
	struct flooders flooders = {.count = settings->processes};
	int socks[FLOOD_PROCESSES_MAX], ends[2];

	flooders.done = mmap(NULL, sizeof(uint64_t[FLOOD_PROCESSES_MAX]), PROT_READ | PROT_WRITE,
			     MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (flooders.done == MAP_FAILED)
		DIE("out of memory");
	fflush(NULL);
	for (unsigned i = 0; i < settings->processes; i++) {
		if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0)
			DIE("socketpair: %s", strerror(errno));
		socks[i] = ends[0];
		flooders.pids[i] = fork();
		if (flooders.pids[i] == 0)
			run_process(flood, settings, i, &flooders.done[i], ends[1]);
		close(ends[1]);
	}
	gather(socks, settings->processes); /* all connections are open */
	gather(socks, settings->processes); /* all requests are under way */
	for (unsigned i = 0; i < settings->processes; i++)
		close(socks[i]);
	return flooders;
}

uint64_t flooders_done(const struct flooders *flooders)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < flooders->count; i++)
		sum += __atomic_load_n(&flooders->done[i], __ATOMIC_RELAXED);
	return sum;
}

void flooders_stop(struct flooders *flooders)
{
	int status;

	for (unsigned i = 0; i < flooders->count; i++)
		kill(flooders->pids[i], SIGKILL);
	for (unsigned i = 0; i < flooders->count; i++)
		if (waitpid(flooders->pids[i], &status, 0) < 0 || !WIFSIGNALED(status))
			DIE("a process of the flood ended before its time");
	munmap(flooders->done, sizeof(uint64_t[FLOOD_PROCESSES_MAX]));
	flooders->count = 0;
}
