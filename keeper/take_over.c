#include "take_over.h"
#include "../service/log.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* Between two looks whether the keeper is told to stop. */
#define LOOK_MS 100
/* The time for the other keeper's next packet. Before it answers, it may have to wait for a third keeper (HAND_OVER_MS), to start its
 * program again (START_TIMEOUT_MS), and to end it. After that only a keeper that does not run says nothing: a paused container. */
#define PACKET_MS 240000
/* The time for the answer to TAKEN, which comes at once. Meanwhile nobody serves. */
#define YOURS_MS 10000

void take_over_end(struct take_over *t)
{
	link_close(&t->link);
}

bool take_over_is_open(const struct take_over *t)
{
	return t->link.sock >= 0;
}

/* ---- receiving ---- */

/* Waits for a packet. Returns 1, 0 at the end of the connection, or -errno; -ETIMEDOUT after `limit_ms`. */
static int wait_packet(struct link *link, unsigned limit_ms)
{
	struct pollfd ready = {.fd = link->sock, .events = POLLIN};
	unsigned waited_ms = 0;
	int r;

	while ((r = link_receive(link)) == -EAGAIN) {
		if (stop_is_pending())
			return -ECANCELED;
		if (waited_ms >= limit_ms)
			return -ETIMEDOUT;
		if (poll(&ready, 1, LOOK_MS) == 0)
			waited_ms += LOOK_MS;
	}
	return r;
}

/* A line with a name for each descriptor. */
static int take_fds(struct link *link, char *names, struct store *store)
{
	int r = 0;

	for (size_t i = 0; r >= 0 && i < link->packet.fd_count; i++) {
		char *name = strsep(&names, "\n");
		int fd;

		if (!name || !fd_name_valid(name, strlen(name)))
			return -EBADMSG;
		r = packet_take_fd(&link->packet, i, &fd);
		if (r == 0)
			r = store_add(store, fd, name);
	}
	return r < 0 ? r : 0;
}

/* Returns 1 if this was the last packet, 0 if more come. */
static int on_packet(struct take_over *t, struct store *store, struct take_over_socket *sock)
{
	struct link *link = &t->link;
	const char *text;

	if (link->packet.fds_cut)
		return -EMFILE;
	if ((text = link_text(link, LINK_NO))) {
		log_error("the keeper there hands nothing over: %s", text);
		return -EBUSY;
	}
	if (link_text(link, LINK_BEGIN)) {
		take_over_socket_close(sock);
		if (packet_take_fd(&link->packet, 0, &sock->listener) < 0 ||
		    packet_take_fd(&link->packet, 1, &sock->lock) < 0)
			return -EBADMSG;
		return 0;
	}
	if ((text = link_text(link, LINK_STORE)))
		return take_fds(link, link->text + (text - link->text), store);
	if ((text = link_text(link, LINK_END)))
		return strtoull(text, NULL, 10) == store->count ? 1 : -EBADMSG;
	return -EBADMSG;
}

/* Returns 1 with the whole store, 0 if the other keeper ended before that. */
static int receive_store(struct take_over *t, uint64_t generation, struct store *store,
			 struct take_over_socket *sock)
{
	char ask[64];
	int r;

	snprintf(ask, sizeof(ask), "%d %zu %llu", LINK_PROTOCOL, store->max, (unsigned long long)generation);
	r = link_say(&t->link, LINK_ASK, ask);
	if (r == -EPIPE || r == -ECONNRESET)
		return 0;
	while (r == 0) {
		r = wait_packet(&t->link, PACKET_MS);
		if (r == 0)
			return 0;
		if (r > 0)
			r = on_packet(t, store, sock);
	}
	return r;
}

static int take_over_give_up(struct take_over *t, int r)
{
	const char *remedy = "";

	if (r == -EMFILE)
		remedy = "; raise RLIMIT_NOFILE (ulimit -Hn, docker run --ulimit nofile=)";
	else if (r == -ETIMEDOUT)
		remedy = ": it has said nothing for four minutes; is its container paused?";
	if (r != -EBUSY && r != -ECANCELED)
		log_error("the descriptors of the other keeper can't be taken over: %s%s", strerror(-r),
			  remedy);
	if (r != -EBUSY)
		link_say(&t->link, LINK_BACK, strerror(-r));
	t->lost = true;
	take_over_end(t);
	return r;
}

int take_over_begin(struct take_over *t, const char *path, uint64_t generation, struct store *store,
		    struct take_over_socket *ret_socket)
{
	int peer, r;

	while ((r = take_over_socket_find(ret_socket, path, &peer)) == 1) {
		log_info("another keeper listens at %s: gpuwm-keeper takes over from it", path);
		link_open(&t->link, peer);
		r = receive_store(t, generation, store, ret_socket);
		if (r < 0)
			return take_over_give_up(t, r);
		if (r == 1) {
			log_info("%zu descriptors came from the other keeper", store->count);
			return 0;
		}
		take_over_end(t);
		/* The other keeper died while it sent: what arrived is all that there is. */
		if (ret_socket->lock >= 0) {
			log_warning(
				"the other keeper died while it handed over: %zu descriptors arrived, others may be lost",
				store->count);
			return 0;
		}
		/* It ended with nothing sent: look again. */
	}
	if (r == 0)
		log_info("no keeper listens at %s: gpuwm-keeper begins with an empty store", path);
	return r;
}

/* ---- whose the store is ---- */

static enum take_over_result ours(struct take_over *t, const char *how)
{
	log_info("the store belongs to this keeper: %s", how);
	take_over_end(t);
	return TAKE_OVER_OURS;
}

static enum take_over_result lost(struct take_over *t, const char *why)
{
	log_error("the other keeper goes on with its store: %s", why);
	t->lost = true;
	take_over_end(t);
	return TAKE_OVER_LOST;
}

enum take_over_result take_over_go_on(struct take_over *t)
{
	const char *why;
	int r = link_receive(&t->link);

	if (r == -EAGAIN)
		return TAKE_OVER_GO_ON;
	if (r <= 0)
		return ours(t, "the other one has ended");
	why = link_text(&t->link, LINK_NO);
	if (!why)
		why = link_text(&t->link, LINK_MINE);
	return why ? lost(t, why) : TAKE_OVER_GO_ON;
}

/* A packet could not be sent. If the other keeper closed the connection on purpose, it has said so before. If the connection
 * is still there, the other keeper finds it closed and goes on. */
static enum take_over_result not_sent(struct take_over *t, int r)
{
	if (r == -EPIPE || r == -ECONNRESET || r == -ECONNREFUSED || r == -ENOTCONN)
		return take_over_go_on(t);
	return lost(t, strerror(-r));
}

/* The other keeper answers at once, or has ended, or does not run. It may have said NO before it saw TAKEN: what it says after that
 * counts. If this keeper does not get the answer, it has served nobody. */
enum take_over_result take_over_taken(struct take_over *t)
{
	int r = link_say(&t->link, LINK_TAKEN, "");
	bool yours = false;

	if (r < 0)
		return not_sent(t, r);
	do
		r = wait_packet(&t->link, YOURS_MS);
	while (r > 0 && !link_text(&t->link, LINK_YOURS));
	if (r < 0) {
		/* This keeper does not wait for the answer any longer. It closes the connection for reading, and the
		 * kernel says which came first: YOURS, or the end. If it was the end, YOURS can't be delivered, and the
		 * other keeper goes on. */
		shutdown(t->link.sock, SHUT_RD);
		while (link_receive(&t->link) == 1)
			yours |= link_text(&t->link, LINK_YOURS) != NULL;
		if (!yours)
			return lost(t, r == -ETIMEDOUT ? "it does not answer; is its container paused?"
						       : strerror(-r));
	}
	return ours(t, r == 0 ? "the other one has ended" : "it was handed over");
}

enum take_over_result take_over_leave(struct take_over *t, const char *why)
{
	link_say(&t->link, LINK_BACK, why);
	return lost(t, why);
}

enum take_over_result take_over_give_back(struct take_over *t, const char *why)
{
	int r = link_say(&t->link, LINK_BACK, why);

	return r < 0 ? not_sent(t, r) : TAKE_OVER_GO_ON;
}
