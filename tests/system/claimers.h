/* Processes that claim one name, and do as they are told. */
#ifndef GPUWM_TESTS_CLAIMERS_H
#define GPUWM_TESTS_CLAIMERS_H

#include "harness.h"

#define CROWD 16
/* What sixteen processes take to do something, on a machine that does much else. */
#define SLOW_MS 20000
#define NAME "m@v1"

struct crowd {
	struct gpuwmd *d;
	struct process p[CROWD];
	bool gone[CROWD];
	int count;
};

/* A process that claims: 'b' it is to build, 'a' it is attached, and has read all. Who builds hears 'p' (publishes),
 * 'o' (begins a publish), 'c' (commits what it began, in vain, and claims again), 'x' (aborts what it began, and claims again), 'g' (gives up,
 * and claims again), and says the word when it is done. Everybody hears 'd': gives back, and ends. */
struct process claimer_start(struct gpuwmd *d, const char *name);
/* One that is to build does it, and ends. */
void claimer_publish(struct process *p);

/* All of them claim NAME, and wait but for one: which is told. */
int crowd_start(struct crowd *c, struct gpuwmd *d, int count);
/* The next who is to build; nobody else says a word before. */
int crowd_elect(struct crowd *c);
bool crowd_is_silent(struct crowd *c);
void crowd_tell(struct crowd *c, int which, char word);
void crowd_kill(struct crowd *c, int which);
/* The builder publishes, the others attach, and all end; gpuwmd too. */
void crowd_end(struct crowd *c, int builder);

#endif
