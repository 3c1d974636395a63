/* The new keeper's side of --take-over: see hand_over.h. */
#ifndef GPUWM_KEEPER_TAKE_OVER_H
#define GPUWM_KEEPER_TAKE_OVER_H

#include "link.h"
#include "store.h"
#include "take_over_socket.h"

#include <stdbool.h>
#include <stdint.h>

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

#endif
