/* Descriptors that lie unread in the connections of one user. The kernel counts the descriptors that gpuwmd has in
 * flight to all of its peers together, and refuses more than RLIMIT_NOFILE of them (unless gpuwmd is root): without a
 * bound for each user, one that never reads would keep all others from attaching. */
#ifndef GPUWM_DAEMON_UNREAD_H
#define GPUWM_DAEMON_UNREAD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct session;
struct unread;

/* NULL: out of memory. */
struct unread *unread_new(void);
/* After all sessions have gone: closes what still lies unread. NULL is fine. */
struct unread *unread_free(struct unread *unread);

/* Returns whether gpuwmd may send so many more descriptors to the session now. If the session's user has its share of
 * UNREAD_FDS_ALL_MAX already, the function first looks at some of the user's sessions: their peers may have read
 * meanwhile. A user that leaves nothing unread always has room for a reply. */
bool unread_has_room(struct session *session, size_t fds);
/* They were sent. Without memory to note it they do not count. */
void unread_add(struct session *session, size_t fds);
/* The peer has read all. */
void unread_clear(struct session *session);
/* The session ends. True: its peer has not read all, so the socket, the session's charge and its share are taken
 * over: descriptors stay in flight after gpuwmd has closed its end. They go when the peer reads or closes. */
bool unread_take_over(struct session *session);
/* Returns how many sessions have ended while their sockets are still open. */
uint64_t unread_leftovers(const struct unread *unread);
/* Of a user: descriptors that were not seen to be read. */
uint64_t unread_count(const struct unread *unread, unsigned uid);

/* Sessions whose descriptors the kernel does not take, because too many lie unread in the connections of gpuwmd's peers. The
 * kernel does not say when those peers have read them, so each session tries again after a while, in its share's time. */
struct crowded;

/* Returns NULL if there is no memory. */
struct crowded *crowded_new(uv_loop_t *loop);
/* Call it when no session is in it any more. The close callback frees the memory. Returns NULL; NULL is fine. */
struct crowded *crowded_free(struct crowded *crowded);

/* Makes session->task, which tries again, due every few milliseconds. A second call does nothing. */
void crowded_add(struct crowded *crowded, struct session *session);
/* A second call does nothing. */
void crowded_remove(struct session *session);

#endif
