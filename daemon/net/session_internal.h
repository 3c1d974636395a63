/* What session.c and session_send.c share; nobody else. */
#ifndef GPUWM_DAEMON_SESSION_INTERNAL_H
#define GPUWM_DAEMON_SESSION_INTERNAL_H

#include "net.h"
#include "session.h"

#include <sys/epoll.h>

/* What a session's socket is watched for. */
enum {
	WATCH_READ = EPOLLIN,
	WATCH_WRITE = EPOLLOUT,
	WATCH_GONE = EPOLLRDHUP,
	/* The kernel signals writability at each read by the peer; only edges tell of one. */
	WATCH_UNREAD = EPOLLRDHUP | EPOLLOUT | EPOLLET,
};

/* In session.c. If the socket can't be watched, the session ends. */
void session_watch(struct session *session, uint32_t events);
/* In session_send.c. Forgets the first packet that waits. */
void outgoing_pop(struct session *session);

#endif
