/* The old keeper's side of --take-over. The new keeper asks; the old one ends its program, so that the state is final, and sends
 * everything that it stores. The old keeper still keeps all of it. When the new keeper's program has adopted the store, the new
 * keeper says TAKEN, gets YOURS as the answer, and lets its program serve; only then the old one lets go.
 *
 * The store changes hands with these two packets, each of which the kernel delivers whole or not at all. If the old keeper does not
 * want to wait any longer, it closes the connection for reading, and the kernel says which came first: TAKEN, or the end. If YOURS
 * can't be delivered, the new keeper is dead and has served nobody. So there is no moment at which both keepers think that they
 * are in charge, and none at which the last of them that lives thinks that it is not. */
#ifndef GPUWM_KEEPER_HAND_OVER_H
#define GPUWM_KEEPER_HAND_OVER_H

#include "link.h"
#include "store.h"
#include "take_over_socket.h"

#include <stdint.h>

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
