/* What gpuwm-keeper answers at a barrier (BARRIER=1 of sd_notify): the descriptors that it did not keep since the barrier
 * before. systemd answers nothing, and keeps silent about what it drops. Before the keeper closes the barrier's
 * descriptor, which is the write end of a pipe, it writes to it, as text: a line "ERRNO NAME" for each descriptor that is
 * not kept, then the line "END". A name of "*" stands for any: not all of them had room in the answer.
 *
 * The variable tells the program that every barrier is answered. So a barrier that was lost, because the keeper had no
 * room for its descriptor, is not taken for one that was passed. */
#ifndef GPUWM_SERVICE_STORE_ANSWER_H
#define GPUWM_SERVICE_STORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define STORE_ANSWER_VARIABLE "GPUWM_STORE_ANSWERS"

/* PIPE_BUF: so much is written to an empty pipe at once. */
#define STORE_ANSWER_BYTES 4096

struct store_answer {
	size_t bytes;
	bool has_more; /* refusals for which there was no room */
	char text[STORE_ANSWER_BYTES + 1];
};

/* Notes that the descriptor of this name is not kept; code: why, a negative errno. Allocates nothing. */
void store_answer_refuse(struct store_answer *answer, const char *name, int code);
/* Writes the answer to the barrier's descriptor, without waiting, and begins the next one. */
void store_answer_send(struct store_answer *answer, int fd);

/* Whether the last line of an answer is there. */
bool store_answer_is_whole(const char *text);
/* 0: the descriptor of this name was kept, as far as the answer says; else a negative errno: why it was not. */
int store_answer_find(const char *text, const char *name);

#endif
