/* One round: a scenario in which at most one call fails, and what must hold during it and afterwards. */
#ifndef GPUWM_FAULTS_ROUND_H
#define GPUWM_FAULTS_ROUND_H

#include "fault.h"
#include "registry.h"
#include "stack.h"

struct scenario;

struct round {
	struct stack *stack;
	const struct scenario *scenario;
	enum program program;
	const struct fault *fault; /* NULL: none */
	unsigned number; /* which call fails, from 1 */
	unsigned refused; /* steps that ended with an error */
	bool failed;
	char why[768]; /* when it failed first */
	const struct trace *crash; /* of a program that ended so; NULL: none */
	const char *step; /* that runs */
	unsigned counts[PROGRAM_COUNT][CALL_COUNT][KIND_COUNT]; /* calls during the scenario */
};

struct scenario {
	const char *name;
	bool from_down, to_down; /* nothing runs when it begins; when it ends */
	void (*act)(struct round *r);
	/* A program beside the stack, whose calls alone fail in this scenario; NULL: what fails is the stack. The words may have
	 * the names of tool.h for what differs by stack. */
	const char *const *words;
	enum program of;
	const char *
		says; /* where the program ends well, its output has this, and as many lines as without a fault */
	void (*after)(struct round *r, int status); /* NULL: it changes nothing */
};

extern const struct scenario scenarios[];
extern const size_t scenario_count;

/* Notes the first failure of the round; the caller goes on or returns as it likes. */
void round_fail(struct round *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* A step waits for several things, for each at most LIMIT_MS. */
#define STEP_SECONDS (4 * LIMIT_MS / 1000)
/* The exit status of a process whose step took longer: it has reported. */
#define EXIT_HUNG 42

/* A library call of the scenario: an error is an answer if it says something and is no lie. */
#define STEP(r, call)                                                                                          \
	({                                                                                                     \
		step_begin(r, #call);                                                                          \
		step_end(r, call);                                                                             \
	})
void step_begin(struct round *r, const char *name);
int step_end(struct round *r, int code);
/* Lets no call fail from here on, so that the scenario can look at what it has done. */
void round_disarm(struct round *r);
/* Whether this error leaves open if the request was carried out. */
bool is_open(int code);

enum round_end { ROUND_RIGHT, ROUND_REFUSED, ROUND_ENDED, ROUND_FAILED };

/* Starts the first stack of this process, and notes how many descriptors and files an idle one has: later ones are to
 * have as many. False: the round has failed. */
bool round_begin(struct round *r);
/* Runs it on a stack that lives or not, and leaves one that lives. *ret_struck: the call was reached. */
enum round_end round_run(struct round *r, bool *ret_struck);
bool leaves_files(const struct fault *fault);
/* Starts what does not run, and fills it. False: the round has failed. */
bool round_up(struct round *r);

#endif
