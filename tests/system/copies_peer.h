/* Processes that attach to copies by legacy CUDA IPC, and what gpuwmd tells of the copies. */
#ifndef GPUWM_TESTS_COPIES_PEER_H
#define GPUWM_TESTS_COPIES_PEER_H

#include "harness.h"

/* Copies end at once after their last lease. */
#define AT_ONCE "--set", "loader.keep_copy=0"

struct gpuwm_attach_options by_copy(const struct gpuwmd *d);

/* Attaches to m@v1, and says 'a', or 'f' for a failure. Then it answers, each with a word: 'r' (whether the copy that it attached to last
 * has all bytes: 'k'), 'n' (how often it was told that a lease is gone: a digit), 'c' (whether the first mapping says so: 'y'), 'A'
 * (attaches anew beside the first: 'a'). */
struct process peer_start(const struct gpuwmd *d);
/* The same, and it has attached. */
struct process peer_of(const struct gpuwmd *d);
char peer_answers(struct process *p, char word);
/* It detaches and ends. */
void peer_end(struct process *p);

/* A number of the first copy that `list` tells; 0: there is none. */
uint64_t copy_number(struct gpuwmd *d, const char *key);
/* The process that holds that copy. */
pid_t copy_holder(struct gpuwmd *d);

#endif
