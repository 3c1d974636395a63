#include "unread.h"
#include "server.h"
#include "session.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <unistd.h>

#define WAKE_BATCH 64
/* How often a refused descriptor is tried again: the peers that are in the way
 * are others, whose reading nothing tells us. */
#define RETRY_MS 10

struct unread {
	int epoll;
	uv_poll_t poll;
	uv_timer_t retry;
	unsigned handles;
	struct server *server;
};

static void on_readable(uv_poll_t *poll, int status, int events)
{
	struct unread *unread = poll->data;
	struct epoll_event woken[WAKE_BATCH];
	int count = status < 0 ? 0 : epoll_wait(unread->epoll, woken, WAKE_BATCH, 0);

	(void)events;
	for (int i = 0; i < count; i++)
		session_flush(woken[i].data.ptr);
}

static void on_closed(uv_handle_t *handle)
{
	struct unread *unread = handle->data;

	if (--unread->handles == 0)
		free(unread);
}

static void on_retry(uv_timer_t *timer)
{
	struct unread *unread = timer->data;
	bool more = false;

	for (struct session *s = unread->server->sessions; s; s = s->next) {
		if (s->crowded_since == 0)
			continue;
		session_flush(s);
		more = more || (s->crowded_since != 0 && !s->ended);
	}
	if (!more)
		uv_timer_stop(timer);
}

struct unread *unread_new(uv_loop_t *loop)
{
	struct unread *unread = calloc(1, sizeof(*unread));

	if (!unread)
		return NULL;
	unread->server = loop->data;
	unread->epoll = epoll_create1(EPOLL_CLOEXEC);
	if (unread->epoll < 0 || uv_poll_init(loop, &unread->poll, unread->epoll) < 0) {
		if (unread->epoll >= 0)
			close(unread->epoll);
		free(unread);
		return NULL;
	}
	uv_timer_init(loop, &unread->retry);
	unread->handles = 2;
	unread->poll.data = unread->retry.data = unread;
	uv_poll_start(&unread->poll, UV_READABLE, on_readable);
	return unread;
}

struct unread *unread_free(struct unread *unread)
{
	if (!unread)
		return NULL;
	uv_close((uv_handle_t *)&unread->poll, on_closed);
	uv_close((uv_handle_t *)&unread->retry, on_closed);
	close(unread->epoll);
	return NULL;
}

int unread_watch(struct unread *unread, struct session *session)
{
	struct epoll_event event = {.events = EPOLLOUT | EPOLLET, .data.ptr = session};

	if (session->unread_watched)
		return 0;
	if (epoll_ctl(unread->epoll, EPOLL_CTL_ADD, session->sock, &event) < 0)
		return -errno;
	session->unread_watched = true;
	return 0;
}

void unread_forget(struct unread *unread, struct session *session)
{
	if (session->unread_watched)
		epoll_ctl(unread->epoll, EPOLL_CTL_DEL, session->sock, NULL);
	session->unread_watched = false;
}

void unread_retry(struct unread *unread)
{
	if (!uv_is_active((uv_handle_t *)&unread->retry))
		uv_timer_start(&unread->retry, on_retry, RETRY_MS, RETRY_MS);
}
