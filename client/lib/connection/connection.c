#include "connection.h"

#include "../../../base/clock.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* That one call of connection_poll handles: all that gpuwmd keeps for who comes late, and then some. */
#define POLL_PACKETS_MAX (2 * EVENTS_KEPT_MAX)

struct connection {
	unsigned uses; /* atomic */
	pthread_mutex_t lock; /* one call at a time */
	struct fork_hook hook;
	int sock;
	struct error broken; /* code 0: alive; else what every further call gets */
	connection_notify_fn *notify;
	void *notify_data;
	uint64_t notify_round;
	uint8_t *buffer; /* for one packet */
};

static void close_in_child(void *object)
{
	struct connection *c = object;

	close(c->sock);
	c->sock = -1;
}

int connection_new(int sock, struct connection **ret)
{
	struct connection *c = calloc(1, sizeof(*c));
	int flags = fcntl(sock, F_GETFL);

	if (c)
		c->buffer = malloc(PACKET_BYTES_MAX + 1);
	if (!c || !c->buffer || flags < 0 || fcntl(sock, F_SETFL, flags | O_NONBLOCK) < 0) {
		int r = flags < 0 ? -errno : -ENOMEM;

		if (c)
			free(c->buffer);
		free(c);
		return r;
	}
	pthread_mutex_init(&c->lock, NULL);
	c->uses = 1;
	c->sock = sock;
	fork_watch(&c->hook, close_in_child, c);
	*ret = c;
	return 0;
}

struct connection *connection_keep(struct connection *c)
{
	__atomic_add_fetch(&c->uses, 1, __ATOMIC_RELAXED);
	return c;
}

struct connection *connection_free(struct connection *c)
{
	if (!c || __atomic_sub_fetch(&c->uses, 1, __ATOMIC_ACQ_REL) > 0)
		return NULL;
	fork_lock();
	fork_unwatch(&c->hook);
	if (c->sock >= 0)
		close(c->sock);
	fork_unlock();
	pthread_mutex_destroy(&c->lock);
	free(c->buffer);
	free(c);
	return NULL;
}

int connection_fd(const struct connection *c)
{
	return c->sock;
}

void connection_on_notify(struct connection *c, connection_notify_fn *fn, void *user_data, uint64_t round)
{
	pthread_mutex_lock(&c->lock);
	c->notify = fn;
	c->notify_data = user_data;
	c->notify_round = round;
	pthread_mutex_unlock(&c->lock);
}

void connection_shutdown(struct connection *c)
{
	shutdown(c->sock, SHUT_RDWR);
}

bool connection_has_ended(const struct connection *c)
{
	struct pollfd p = {.fd = c->sock, .events = POLLRDHUP};

	return poll(&p, 1, 0) > 0;
}

uint64_t request_next_id(void)
{
	static uint64_t last;

	return __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

/* Nothing can be trusted on this connection any more: the peer sees its end
 * now, and every further call gets the same error. */
static int connection_break(struct connection *c, const struct error *error)
{
	c->broken = *error;
	connection_shutdown(c);
	return error->code;
}

/* One packet: 1 and *ret, 0 when there is none now. Errors break the connection. */
static int connection_receive(struct connection *c, struct reply *ret, struct error *error)
{
	int r = reply_receive(c->sock, c->buffer, ret);

	if (r == -EAGAIN || r == -EINTR)
		return 0;
	if (r == 0) {
		error_set(error, -ECONNRESET, "connect again; what was leased on this connection is given back",
			  "the peer ended the connection");
		return connection_break(c, error);
	}
	if (r < 0) {
		error_set(error, r, NULL, "receiving failed: %s", strerror(-r));
		return connection_break(c, error);
	}
	r = reply_decode(ret, error);
	return r < 0 ? connection_break(c, error) : 1;
}

/* Waits for `events` of the socket. 1, 0 when time ran out, -errno. */
static int connection_wait(struct connection *c, short events, int64_t deadline)
{
	struct pollfd p = {.fd = c->sock, .events = events};

	for (;;) {
		int r = poll(&p, 1, clock_left(deadline));

		if (r > 0)
			return 1;
		if (r == 0 && clock_left(deadline) == 0)
			return 0;
		if (r < 0 && errno != EINTR)
			return -errno;
	}
}

/* What is no answer to anything that waits: notifications are handed on, an
 * answer without an id is why the peer ends the connection, others are dropped. */
static int connection_aside(struct connection *c, struct reply *reply, struct error *error)
{
	struct message *m = &reply->message;
	int r = 0;

	if (m->type == MESSAGE_NOTIFICATION) {
		if (c->notify)
			c->notify(m, &reply->packet, c->notify_data, c->notify_round);
		r = 1;
	} else if (m->type == MESSAGE_RESPONSE && !m->has_id && m->error.code) {
		*error = m->error;
		r = connection_break(c, error);
	}
	reply_clear(reply);
	return r;
}

/* The kernel counts these descriptors of each user against the limit of the process that sends more. */
static const char crowded_remedy[] =
	"processes of this user have sent descriptors that nobody has read: end the process that does not read, or "
	"raise the soft limit of open files (ulimit -Sn)";

/* Sends one packet; what arrives meanwhile is handled, so that two peers with
 * full buffers do not wait for each other. 1: sent; 0: the peer has left. */
static int connection_send(struct connection *c, const struct message_writer *w,
			   const struct descriptors *descriptors, int64_t deadline, struct error *error)
{
	struct reply reply;
	int r;

	for (;;) {
		r = packet_send(c->sock, w->buffer.data, w->buffer.size, descriptors->fds, descriptors->count);
		if (r != -EAGAIN)
			break;
		r = connection_wait(c, POLLIN | POLLOUT, deadline);
		if (r == 0)
			r = error_set(error, -ETIMEDOUT, NULL, "the peer does not read");
		if (r < 0)
			return connection_break(c, error);
		r = connection_receive(c, &reply, error);
		if (r > 0)
			r = connection_aside(c, &reply, error);
		if (r < 0)
			return r;
	}
	/* The peer has left: the answer that says why may be waiting. */
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	if (r < 0)
		return error_set(error, r, r == -ETOOMANYREFS ? crowded_remedy : NULL, "sending failed: %s",
				 strerror(-r));
	return 1;
}

/* Waits for the response to `id`. */
static int connection_answer(struct connection *c, uint64_t id, int64_t deadline, struct reply *ret,
			     struct error *error)
{
	for (;;) {
		int r = connection_receive(c, ret, error);

		if (r < 0)
			return r;
		if (r > 0 && ret->message.type == MESSAGE_RESPONSE && ret->message.has_id &&
		    ret->message.id == id)
			return 0;
		if (r > 0) {
			r = connection_aside(c, ret, error);
			if (r < 0)
				return r;
			/* Whatever else a peer says, it does not put the end off. */
			r = clock_left(deadline) != 0;
		} else {
			r = connection_wait(c, POLLIN, deadline);
		}
		if (r < 0)
			error_set(error, r, NULL, "waiting failed: %s", strerror(-r));
		else if (r == 0)
			r = error_set(error, -ETIMEDOUT,
				      "connect again: a late answer could not be told from the next, so the "
				      "connection is given up",
				      "the peer did not answer in time");
		if (r < 0)
			return connection_break(c, error);
	}
}

static int check_request(struct message_writer *request, struct error *error)
{
	int r = message_finish(request);

	if (r == -EMSGSIZE)
		return error_set(error, r, NULL, "the request is larger than a packet (%d bytes)",
				 PACKET_BYTES_MAX);
	if (r < 0)
		return error_set(error, r, NULL, "the request could not be built: %s", strerror(-r));
	return 0;
}

static int check_unbroken(const struct connection *c, struct error *error)
{
	if (!c->broken.code)
		return 0;
	return error_set(error, -ECONNRESET, c->broken.detail, "the connection has ended: %s",
			 c->broken.message);
}

/* What goes out, and what became of it. */
struct sending {
	struct message_writer *request;
	struct descriptors descriptors;
	bool now; /* or not at all */
	enum fate fate;
};

static int call_locked(struct connection *c, struct sending *sending, int64_t wait_ms, struct reply *ret,
		       struct error *error)
{
	int64_t deadline = clock_deadline(wait_ms);
	int r = check_request(sending->request, error), sent = 0;

	if (r < 0)
		return r;
	r = check_unbroken(c, error);
	if (r == 0)
		r = sent = connection_send(c, sending->request, &sending->descriptors, deadline, error);
	if (r >= 0)
		r = connection_answer(c, sending->request->id, deadline, ret, error);
	if (c->broken.code)
		sending->fate = sent > 0 ? FATE_UNANSWERED : FATE_UNSENT;
	return r;
}

/* Returns the error that gpuwmd answers with, and sets *error to it; 0: there is none. Where the releases of gpuwmd and the
 * library are too far apart, the words need both. gpuwmd's have its own. */
static int reply_error(const struct reply *reply, struct error *error)
{
	const struct error *told = &reply->message.error;

	if (told->code == -EPROTONOSUPPORT || told->code == -ENOSYS)
		return error_set(error, told->code, told->detail, "%s; this is libgpuwm-client " GPUWM_VERSION,
				 told->message);
	if (told->code < 0)
		*error = *told;
	return told->code;
}

static int connection_run(struct connection *c, struct sending *sending, int64_t wait_ms,
			  struct reply *ret_reply, struct error *error)
{
	struct error unused;
	/* cppcheck-suppress uninitvar ; call_locked fills it */
	struct reply own, *reply = ret_reply ? ret_reply : &own;
	int r;

	if (!error)
		error = &unused;
	r = fork_check(&c->hook, error);
	if (r < 0)
		return r;
	if (sending->now && pthread_mutex_trylock(&c->lock) != 0)
		return error_set(error, -EBUSY, NULL, "another call is under way");
	if (!sending->now)
		pthread_mutex_lock(&c->lock);
	r = call_locked(c, sending, wait_ms, reply, error);
	pthread_mutex_unlock(&c->lock);
	if (r < 0)
		return r;
	r = reply_error(reply, error);
	if (r == 0 && reply_open_body(reply, error) < 0) {
		/* What was done for this connection alone ends with it. */
		pthread_mutex_lock(&c->lock);
		r = connection_break(c, error);
		pthread_mutex_unlock(&c->lock);
		sending->fate = FATE_UNANSWERED;
	}
	if (r < 0 || !ret_reply)
		reply_clear(reply);
	return r;
}

int connection_call(struct connection *c, struct message_writer *request, int64_t wait_ms,
		    struct reply *ret_reply, struct error *error)
{
	struct sending sending = {.request = request};

	return connection_run(c, &sending, wait_ms, ret_reply, error);
}

int connection_call_with(struct connection *c, struct message_writer *request,
			 const struct descriptors *descriptors, int64_t wait_ms, struct reply *ret_reply,
			 struct error *error)
{
	struct sending sending = {.request = request, .descriptors = *descriptors};

	return connection_run(c, &sending, wait_ms, ret_reply, error);
}

int connection_try(struct connection *c, struct message_writer *request, int64_t wait_ms,
		   struct reply *ret_reply, enum fate *ret_fate, struct error *error)
{
	struct sending sending = {.request = request};
	int r = connection_run(c, &sending, wait_ms, ret_reply, error);

	*ret_fate = sending.fate;
	return r;
}

int connection_try_now(struct connection *c, struct message_writer *request, int64_t wait_ms,
		       enum fate *ret_fate, struct error *error)
{
	struct sending sending = {.request = request, .now = true};
	int r = connection_run(c, &sending, wait_ms, NULL, error);

	*ret_fate = sending.fate;
	return r;
}

int connection_post(struct connection *c, struct message_writer *request, struct error *error)
{
	int r = fork_check(&c->hook, error);

	if (r == 0)
		r = check_request(request, error);
	if (r < 0)
		return r;
	/* One packet is one system call, which whoever reads meanwhile has no part in. */
	r = packet_send(c->sock, request->buffer.data, request->buffer.size, NULL, 0);
	return r < 0 ? error_set(error, r, NULL, "sending failed: %s", strerror(-r)) : 0;
}

int connection_notify(struct connection *c, struct message_writer *notification, struct error *error)
{
	struct error unused;
	int r;

	if (!error)
		error = &unused;
	r = fork_check(&c->hook, error);
	if (r < 0)
		return r;
	r = message_finish(notification);
	if (r < 0)
		return error_set(error, r, NULL, "the notification could not be built: %s", strerror(-r));
	pthread_mutex_lock(&c->lock);
	r = check_unbroken(c, error);
	if (r == 0)
		r = connection_send(c, notification, &(struct descriptors){0}, clock_deadline(CALL_TIMEOUT_MS),
				    error);
	pthread_mutex_unlock(&c->lock);
	return r < 0 ? r : 0;
}

static int poll_locked(struct connection *c, int64_t deadline)
{
	struct error error;
	struct reply reply;
	int count = 0, r;

	if (c->broken.code)
		return -ECONNRESET;
	/* A peer that never stops does not keep the caller. */
	for (unsigned packets = 0; packets < POLL_PACKETS_MAX; packets++) {
		r = connection_receive(c, &reply, &error);
		if (r > 0)
			r = connection_aside(c, &reply, &error);
		else if (r == 0 && count > 0)
			return count;
		else if (r == 0) {
			r = connection_wait(c, POLLIN, deadline);
			if (r <= 0)
				return r;
			continue;
		}
		if (r < 0)
			return count > 0 ? count : r;
		count += r;
	}
	return count;
}

int connection_poll(struct connection *c, int64_t wait_ms)
{
	int r = fork_check(&c->hook, NULL);

	if (r < 0)
		return r;
	pthread_mutex_lock(&c->lock);
	r = poll_locked(c, clock_deadline(wait_ms));
	pthread_mutex_unlock(&c->lock);
	return r;
}

int connection_poll_now(struct connection *c)
{
	int r = fork_check(&c->hook, NULL);

	if (r < 0)
		return r;
	if (pthread_mutex_trylock(&c->lock) != 0)
		return -EBUSY;
	r = poll_locked(c, clock_deadline(0));
	pthread_mutex_unlock(&c->lock);
	return r;
}
