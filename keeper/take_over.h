/* --take-over: one keeper follows another.
 *
 * The new keeper asks; the old one ends its program, so that the state is final, and sends everything that it stores. The old keeper
 * still keeps all of it. When the new keeper's program has adopted the store, the new keeper says TAKEN, gets YOURS as the answer,
 * and lets its program serve; only then the old one lets go.
 *
 * The store changes hands with these two packets, each of which the kernel delivers whole or not at all. If the old keeper does not
 * want to wait any longer, it closes the connection for reading, and the kernel says which came first: TAKEN, or the end. If YOURS
 * can't be delivered, the new keeper is dead and has served nobody. So there is no moment at which both keepers think that they
 * are in charge, and none at which the last of them that lives thinks that it is not. */
#ifndef GPUWM_KEEPER_TAKE_OVER_H
#define GPUWM_KEEPER_TAKE_OVER_H

#include "store.h"
#include "../proto/wire/packet.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- the socket ----
 * The next keeper connects to it. A keeper hands the socket and its lock over with everything else, so the file, whose mode is 0600,
 * stays the same from keeper to keeper.
 *
 * The keeper that holds the lock on PATH.lock is in charge. A lock of flock(2) belongs to the open file and not to a process, so
 * the lock ends when no keeper has the descriptor any more. */

struct take_over_socket {
	int listener, lock; /* -1: none */
};

/* Connects to the keeper that listens at `path`, or begins to listen there itself if there is none. While another keeper
 * holds the lock and does not listen, because it is ending, the function waits for its end.
 *
 * Returns 1 and sets *ret_peer, the connection to the other keeper. Returns 0 if no keeper is there: *ret has the socket and
 * its lock. Fails with -errno, and logs why; with -ECANCELED if the keeper was told to stop meanwhile. */
int take_over_socket_find(struct take_over_socket *ret, const char *path, int *ret_peer);

/* Accepts a connection. The peer must be a process of the keeper's own user or of root: others are told NO, and the log says
 * so. Returns the descriptor, or -1. */
int take_over_socket_accept(const struct take_over_socket *socket);

/* Closes both. The file stays, since another keeper may listen there. */
void take_over_socket_close(struct take_over_socket *socket);

/* Returns whether SIGTERM or SIGINT waits for the keeper, which blocks them. */
bool stop_is_pending(void);

/* ---- the connection between the two: packets of text and descriptors ---- */

/* The new keeper says: */
#define LINK_ASK "TAKE-OVER" /* and the protocol's number, its --store-max, its --generation */
#define LINK_TAKEN "TAKEN" /* the new keeper's program has adopted the store */
#define LINK_BACK                                                                                              \
	"BACK" /* and why: the new keeper's program has ended, and the store belongs to the old keeper */
/* The old keeper says: */
#define LINK_NO "NO" /* and why: the store belongs to the old keeper */
#define LINK_BEGIN "BEGIN" /* with the take-over socket and its lock */
#define LINK_STORE "STORE" /* and a line with a name for each descriptor that comes with the packet */
#define LINK_END "END" /* and the number of all descriptors */
#define LINK_YOURS "YOURS" /* the answer to TAKEN: the store belongs to the new keeper */
#define LINK_MINE "MINE" /* and why: the answer to BACK */

/* A keeper of another protocol is refused, and named. */
#define LINK_PROTOCOL 1

struct link {
	int sock; /* -1: none */
	struct packet packet; /* the last one that was received */
	char text[PACKET_BYTES_MAX + 1]; /* its text, with a terminating zero */
};

void link_open(struct link *link, int sock);
void link_close(struct link *link);

/* Sends a word and a text behind it, without waiting. Returns 0. Fails with -errno, as packet_send. */
int link_say(const struct link *link, const char *word, const char *text);

/* The same for the last word, which must arrive also if the other keeper has not read for long and the socket's buffer is full:
 * it makes the buffer larger first. */
int link_say_last(const struct link *link, const char *word, const char *text);

/* Receives a packet, without waiting. Returns 1 for a packet, whose descriptors the caller takes with packet_take_fd;
 * the rest is closed with packet_drop. Returns 0 if the other keeper has closed the connection, or has ended, and
 * everything that it sent before was received. Fails with -EAGAIN if nothing is there, and with another -errno. */
int link_receive(struct link *link);

/* Returns the text behind this word if the last packet begins with it, or NULL. */
const char *link_text(const struct link *link, const char *word);

/* ---- the new keeper's side ---- */

enum take_over_result {
	TAKE_OVER_GO_ON, /* nothing changes */
	TAKE_OVER_OURS, /* the old keeper has ended: the store is this one's alone */
	TAKE_OVER_LOST, /* the store is the old keeper's: end the program and this keeper */
};

struct take_over {
	struct link link; /* to the old keeper, until the store has changed hands */
	bool lost; /* the old keeper keeps the store; the log has said why */
};

/* Finds the keeper that listens at `path`, and receives its whole store; or begins to listen there, with an empty store. In both
 * cases sets *ret_socket. The function waits for the other keeper, but fails if that says nothing for four minutes.
 *
 * Returns 0. If there was another keeper, take_over_is_open is true: its store is this one's only after take_over_taken. Fails with
 * -errno, and logs why; with -ECANCELED if the keeper was told to stop. */
int take_over_begin(struct take_over *t, const char *path, uint64_t generation, struct store *store,
		    struct take_over_socket *ret_socket);
void take_over_end(struct take_over *t);

/* Returns whether the store may still go back to the old keeper. */
bool take_over_is_open(const struct take_over *t);
/* Call it when the program has adopted the store, before it serves. Ends the connection, unless the store is lost to the old
 * keeper. */
enum take_over_result take_over_taken(struct take_over *t);
/* Gives the store back at once, also if the program has adopted it: end the program before it serves. */
enum take_over_result take_over_leave(struct take_over *t, const char *why);
/* Call it when the program has ended before it adopted the store: offers the store back. The answer comes over the connection. */
enum take_over_result take_over_give_back(struct take_over *t, const char *why);
/* Call it when the connection is ready. */
enum take_over_result take_over_go_on(struct take_over *t);

/* ---- the old keeper's side ---- */

/* A keeper that has connected asks at once. */
#define HAND_OVER_ASK_MS 5000
/* The time for the new keeper's program to adopt the store, in which nobody serves. It is more than the new keeper's own limit for
 * a start (START_TIMEOUT_MS) and for its program's end. */
#define HAND_OVER_MS 120000

enum hand_over_step {
	HAND_OVER_NONE, /* no other keeper is connected */
	HAND_OVER_ASKING, /* another keeper has connected and has not asked yet */
	HAND_OVER_STOPPING, /* the program is to end first */
	HAND_OVER_SENDING, /* the descriptors are being sent */
	HAND_OVER_WAITING, /* all are sent; the other keeper is to say TAKEN */
};

enum hand_over_result {
	HAND_OVER_GO_ON, /* nothing changes */
	HAND_OVER_STOP, /* end the program, then call hand_over_begin */
	HAND_OVER_FAILED, /* the store is still the caller's: start the program again */
	HAND_OVER_DONE, /* the store is the other keeper's */
};

struct hand_over {
	struct link link;
	enum hand_over_step step;
	uint64_t deadline_ms; /* 0: none */
	size_t sent; /* descriptors */
	uint64_t generation; /* as --generation says it */
};

void hand_over_init(struct hand_over *h, uint64_t generation);
/* Waits for the question of a keeper that has connected. Takes the descriptor over. */
void hand_over_accept(struct hand_over *h, int peer, uint64_t now_ms);
/* Returns what to wait for on h->link.sock, for poll(2). */
short hand_over_events(const struct hand_over *h);
/* Does what the connection allows. Call it when the connection is ready. */
enum hand_over_result hand_over_go_on(struct hand_over *h, const struct store *store);
/* The program has ended: sends the store, and the socket with its lock. */
enum hand_over_result hand_over_begin(struct hand_over *h, const struct store *store,
				      const struct take_over_socket *socket, uint64_t now_ms);
/* The deadline has passed. */
enum hand_over_result hand_over_late(struct hand_over *h);

/* A copy of the memfd in which gpuwmd writes its state. Makes a memfd with the same bytes, holes and seals. Returns its descriptor,
 * which is close-on-exec. Fails with -EINVAL if `fd` is no memfd, and with another -errno. */
int state_copy(int fd);

#endif
