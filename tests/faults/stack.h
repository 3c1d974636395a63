/* A gpuwm-keeper with its gpuwmd and loader, in a folder of its own, all with tests/preload/fail-call.c before them. */
#ifndef GPUWM_FAULTS_STACK_H
#define GPUWM_FAULTS_STACK_H

#include "control.h"

#include <gpuwm/client.h>

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

struct stack {
	char dir[32], socket[64], log[64];
	struct control *control;
	pid_t keeper; /* 0: none runs */
	int status; /* the wait status of the last one */
	bool filled; /* what is kept in it is there */
	long log_from; /* where the lines of this round begin */
};

/* No call and no end of a process takes longer; the library gives up waiting for a gpuwmd before. They take 2 s at most, and ten times as
 * long where all tests run at once. */
#define LIMIT_MS 30000
#define RESTART_MS 8000

/* What is kept in it all the time: model@one and model@two, and the pin "keep" on the first. */
#define MODEL "model"
enum { CONTENT_ONE = 1, CONTENT_TWO };

/* Evaluates the condition again and again, less and less often: the longest wait is 2 s, for the next loader. */
#define EVENTUALLY(ms, condition)                                                                              \
	({                                                                                                     \
		int64_t deadline_ = clock_ms() + (ms);                                                         \
		unsigned looks_ = 0;                                                                           \
		bool holds_;                                                                                   \
		while (!(holds_ = (condition)) && clock_ms() < deadline_)                                      \
			stack_pause(looks_++);                                                                 \
		holds_;                                                                                        \
	})
int64_t clock_ms(void);
void stack_pause(unsigned looks);

/* The folder, its files and the control page; stack_remove ends what runs and removes them. False: why is in
 * stderr. */
bool stack_make(struct stack *s);
void stack_remove(struct stack *s);
/* Starts the keeper, and waits for nothing. */
void stack_spawn(struct stack *s);
/* In a child that will exec: tests/preload/fail-call.c before what it runs, messages to the stack's log, and output there too
 * (-1) or to this descriptor. */
void stack_child(const struct stack *s, int output);
/* Whether the keeper has ended, or none was started. */
bool stack_ended(struct stack *s);
/* Processes that outlived their keeper: they are children of this process. */
unsigned stack_strays(void);

/* A client of this stack that makes no thread of its own and does not outlive its gpuwmd. */
int stack_operator(const struct stack *s, struct gpuwm_client **ret);
/* A worker's, which waits for the next gpuwmd. */
int stack_worker(const struct stack *s, struct gpuwm_client **ret);

/* ---- files and bytes -------------------------------------------------- */

/* The folder that holds the checkpoint of this content: valid until the next call. */
const char *stack_source(const struct stack *s, unsigned content);
extern const struct gpuwm_tensor_spec content_specs[];
#define CONTENT_TENSORS 2
/* Byte `at` of tensor `tensor`. */
uint8_t content_byte(unsigned content, size_t tensor, uint64_t at);
bool content_is(const struct gpuwm_mapping *mapping, unsigned content);

/* ---- looking ---------------------------------------------------------- */

/* What the keeper, gpuwmd and loaders have said in this round: free it. */
char *stack_said(const struct stack *s);
size_t process_fds(pid_t pid);
/* Its children, zombies included. */
unsigned process_children(pid_t pid);
/* Entries of the folder and those below it. */
unsigned stack_files(const struct stack *s);

#endif
