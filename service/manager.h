/* The service manager above: systemd, or gpuwm-keeper. What a service tells it, without waiting for it; and what gpuwm-keeper answers about
 * the descriptors that it keeps. */
#ifndef GPUWM_SERVICE_MANAGER_H
#define GPUWM_SERVICE_MANAGER_H

#include <stdbool.h>
#include <stddef.h>

/* Sends the text to $NOTIFY_SOCKET. sd_notify(3) would wait until the manager reads, for ever if
 * the manager hangs, and the loops of gpuwm must not wait.
 *
 * Returns 0 if the manager was told, or if there is none. Fails with -EAGAIN if its queue is full,
 * or this process has no descriptor left: try again. */
int manager_tell(const char *text);

/* ---- the store of gpuwm-keeper ----
 * gpuwm-keeper answers a barrier (BARRIER=1 of sd_notify) with the descriptors that it did not keep since the barrier before. systemd
 * answers nothing, and does not say what it drops.
 *
 * The barrier's descriptor is the write end of a pipe. Before the keeper closes it, the keeper
 * writes the answer to it, as text: a line "ERRNO NAME" for each descriptor that is not kept, then
 * the line "END". The name "*" stands for any name: the answer had no room for all of them. */

/* This environment variable says that the keeper answers every barrier. Without it a program could
 * not tell an answered barrier from one that the keeper lost because it had no room for the
 * descriptor. */
#define STORE_ANSWER_VARIABLE "GPUWM_STORE_ANSWERS"

/* The name under which gpuwmd stores its state. A keeper that hands its store over keeps this one and gives a copy away: a
 * newer gpuwmd may write what an older one can't read. */
#define STORE_STATE_NAME "gpuwm-state"

/* The environment variable says that gpuwm-keeper has taken the store over from another keeper, which takes it back if the
 * program can't go on with it. The program then sends STORE_ADOPTED_TEXT once it has adopted everything, and a barrier, before
 * it serves anybody; or it ends. The keeper answers that barrier when the store belongs to it. */
#define STORE_ADOPT_VARIABLE "GPUWM_STORE_ADOPT"
#define STORE_ADOPTED_TEXT "X_GPUWM_ADOPTED=1"

/* PIPE_BUF: one write puts this many bytes into an empty pipe. */
#define STORE_ANSWER_BYTES 4096

struct store_answer {
	size_t bytes;
	bool has_more; /* there were refusals for which the text had no room */
	char text[STORE_ANSWER_BYTES + 1];
};

/* Notes that the descriptor of this name is not kept. code is a negative errno that says why. It
 * allocates nothing. */
void store_answer_refuse(struct store_answer *answer, const char *name, int code);
/* Writes the answer to the barrier's descriptor, without waiting, and begins the next answer. */
void store_answer_send(struct store_answer *answer, int fd);

/* Returns whether the answer has its last line. */
bool store_answer_is_whole(const char *text);
/* Returns 0 if the answer does not refuse the descriptor of this name, else the negative errno that
 * says why it was not kept. */
int store_answer_find(const char *text, const char *name);

#endif
