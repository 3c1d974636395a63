/* What gpuwm-keeper answers at a barrier (BARRIER=1 of sd_notify): the descriptors that it did not keep since the barrier
 * before. systemd answers nothing, and keeps silent about what it drops. Before the keeper closes the barrier's
 * descriptor, which is the write end of a pipe, it writes to it, as text: a line "ERRNO NAME" for each descriptor that is
 * not kept, then the line "END". The name "*" stands for any name: the answer had no room for all of them.
 *
 * The variable says that the keeper answers every barrier. So if the keeper lost a barrier, because it had no room for the
 * descriptor, the program does not take the barrier for passed. */
#ifndef GPUWM_SERVICE_STORE_ANSWER_H
#define GPUWM_SERVICE_STORE_ANSWER_H

#include <stdbool.h>
#include <stddef.h>

#define STORE_ANSWER_VARIABLE "GPUWM_STORE_ANSWERS"

/* PIPE_BUF: one write to an empty pipe takes so many bytes. */
#define STORE_ANSWER_BYTES 4096

struct store_answer {
	size_t bytes;
	bool has_more; /* there were refusals for which the text had no room */
	char text[STORE_ANSWER_BYTES + 1];
};

/* Notes that the descriptor of this name is not kept; code: why, a negative errno. Allocates nothing. */
void store_answer_refuse(struct store_answer *answer, const char *name, int code);
/* Writes the answer to the barrier's descriptor, without waiting, and begins the next one. */
void store_answer_send(struct store_answer *answer, int fd);

/* Whether the last line of an answer is there. */
bool store_answer_is_whole(const char *text);
/* Returns 0 if the answer does not refuse the descriptor of this name, else a negative errno: why it was not kept. */
int store_answer_find(const char *text, const char *name);

#endif
