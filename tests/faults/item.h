/* The rounds are many: they are cut into items, which processes of their own work off side by side, each with a stack
 * of its own. What they find lies in memory that they share. */
#ifndef GPUWM_FAULTS_ITEM_H
#define GPUWM_FAULTS_ITEM_H

#include "round.h"

#define SCENARIOS_MAX 16
#define FAULTS_MAX 128

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
	unsigned picks; /* so many calls of each first error only; 0: every call, every error */
	int only_call; /* -1: all */
	unsigned only_number; /* 0: all */
	int report; /* a file for failures */
};

struct item {
	size_t scenario;
	enum program program;
	int call; /* or one of those below */
	unsigned way, ways; /* of all calls' faults every `ways`-th */
	/* Where it is: whoever goes on after a process that was lost takes the next number. */
	size_t fault;
	unsigned number;
	unsigned losses;
};
#define ITEM_ALL_CALLS (-1)
#define ITEM_COUNTS (-2) /* the round without a fault */

/* How many calls of the fault there were in the round without one. */
unsigned plan_calls(const struct plan *plan, size_t scenario, enum program program, size_t fault);
/* Runs the item's rounds, from where it is to its end: the exit status of its process. A round that hangs ends the
 * process with EXIT_HUNG. */
int item_run(const struct plan *plan, struct item *item);
/* After a process that was lost: counts its round, and goes on to the next one. */
void item_lost(const struct plan *plan, struct item *item, int status);

#endif
