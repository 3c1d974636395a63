/* Items are parts of all rounds. Each item runs in a process of its own, with a stack of its own, and several run at a time.
 * They write their results into memory that they share. */
#ifndef GPUWM_FAULTS_ITEM_H
#define GPUWM_FAULTS_ITEM_H

#include "round.h"

#define SCENARIOS_MAX 32
#define FAULTS_MAX 160

/* Rounds of one fault. */
struct tally {
	unsigned rounds; /* in which a call failed */
	unsigned ends[ROUND_FAILED + 1];
};

struct board {
	/* By scenario: calls in a round without a fault. */
	atomic_uint counts[SCENARIOS_MAX][PROGRAM_COUNT][CALL_COUNT][KIND_COUNT];
	struct tally tallies[SCENARIOS_MAX][PROGRAM_COUNT][FAULTS_MAX];
};

struct plan {
	struct board *board;
	unsigned
		picks; /* how many calls fail with the first error only; 0: every call fails with every error */
	int only_call; /* -1: all */
	unsigned only_number; /* 0: all */
	int report; /* a file for failures */
};

struct item {
	size_t scenario;
	enum program program;
	int call; /* or one of those below */
	unsigned way, ways; /* of all calls' faults every `ways`-th */
	/* How far it is. If its process is lost, the next process begins at the next number. */
	size_t fault;
	unsigned number;
	unsigned losses;
};
#define ITEM_ALL_CALLS (-1)
#define ITEM_COUNTS (-2) /* the round without a fault */

/* Returns how many calls that the fault can hit the round without a fault made. */
unsigned plan_calls(const struct plan *plan, size_t scenario, enum program program, size_t fault);
/* Runs the item's rounds from where it is to its end. Returns the exit status of the process. If a round hangs, ends the
 * process with EXIT_HUNG. */
int item_run(const struct plan *plan, struct item *item);
/* Call when the item's process was lost: counts the round that it was in, and moves the item to the next one. */
void item_lost(const struct plan *plan, struct item *item, int status);

#endif
