/* The engine of the storms: tests that throw dice for what happens next, kill processes and gpuwmd amid it, and look whether everything
 * is as it must be. A storm, NAME_storm.c, says what its actors do and what must hold.
 *
 * All throws come from one seed. It is printed before anything happens, with the command that repeats the storm, and once more when the
 * storm fails. What the processes make of the throws depends on the machine's speed too.
 */
#ifndef GPUWM_TESTS_STORM_H
#define GPUWM_TESTS_STORM_H

#include "kept.h"
#include "region_raw.h"

#include "tests/support/any/dice.h"

#include <gpuwm/region.h>

#include <stdatomic.h>

#define STORM_SETTLE_MS 15000 /* with a sanitizer on a busy machine */

/* The suite of a storm, of this name. */
#define STORM_SUITE(name) TestSuite(name, .fini = storm_cleanup)
void storm_cleanup(void);

int64_t clock_us(void);
void pause_us(uint64_t us);
/* Whether the process has not ended. gpuwmd learns of an end when the process is a zombie, and no earlier. */
bool process_runs(pid_t pid);

/* ---- the board: what the test and all actors map -------------------------- */

#define STORM_ACTORS 8
#define STORM_OPERATIONS 12 /* at most */
#define STORM_MOODS 2

enum storm_state { STORM_STARTING, STORM_WORKING, STORM_PARKED, STORM_ENDED };

/* Of one actor. */
struct storm_told {
	_Atomic uint32_t state, slot; /* slot: in the region */
	uint64_t done[STORM_OPERATIONS], refused[STORM_OPERATIONS]; /* of all processes that were this actor */
};

/* What a storm has there of its own stands behind it. */
struct storm_board {
	_Atomic uint64_t operations, granted; /* nobody begins one beyond those granted */
	_Atomic bool park, finish;
	struct storm_told told[STORM_ACTORS];
};

/* What an actor may do. A table of them ends with one without a name. */
struct storm_actor;
struct storm_operation {
	const char *name;
	/* 0, the code of a refusal that may happen, or -EBUSY: there was nothing to do it with, and it does not count. */
	int (*act)(struct storm_actor *a);
	unsigned chances[STORM_MOODS]; /* among those of all of them, in each mood of the actor */
};

/* ---- the conductor: the test ---------------------------------------------- */

struct storm;

/* What a storm with a board consists of. */
struct storm_play {
	process_fn *actor; /* argv: for storm_actor_begin */
	const struct storm_operation *operations;
	unsigned actors;
	size_t board_bytes;
	unsigned check_each; /* operations between two checks */
	unsigned burst; /* operations between two strikes, at most */
	unsigned beyond; /* operations that may begin while a strike is prepared */
	void (*starting)(struct storm *s, unsigned actor); /* before its process starts; or NULL */
	void (*strike)(struct storm *s); /* somebody is killed or stopped */
	void (*check)(struct storm *s); /* while all actors are parked */
};

struct storm {
	const char *name; /* of its suite */
	uint64_t seed, length;
	struct dice dice;
	struct gpuwmd *d;
	bool is_away; /* gpuwmd, after a kill */
	struct gpuwm_client *client;
	/* With a board: */
	const struct storm_play *play;
	struct storm_board *board;
	char path[160]; /* the board's */
	struct process actors[STORM_ACTORS];
	uint64_t starts; /* of actors */
	unsigned kills, gpuwmd_kills, stops, checks;
};

/* Throws the seed, or takes GPUWM_STORM_SEED, and tells how to repeat the storm. `variable`: of the environment, says how long it is
 * instead of `length`. */
void storm_begin(struct storm *s, const char *name, const char *variable, uint64_t length);
/* Starts gpuwmd under a keeper, and connects. */
void storm_serve(struct storm *s, const struct kept *how);
/* Makes the board, and starts the actors. */
void storm_populate(struct storm *s, const struct storm_play *play);
/* As many operations as the storm is long, with strikes amid them and checks between them. */
void storm_run(struct storm *s);
/* The two steps of it: goes on until so many operations were begun, with strikes amid them; checks. */
void storm_go_on(struct storm *s, uint64_t until);
void storm_check(struct storm *s);
/* The loaders of all gpuwmds of this test. */
unsigned storm_loaders(void);
/* Tells the actors to end, which they must do well. */
void storm_finish(struct storm *s);
/* Tells what was done and refused. */
void storm_tell(const struct storm *s);
/* Stops gpuwmd, where nothing may be left. The storm has passed then. */
void storm_end(struct storm *s);
/* Alone the latter: no failure is the storm's from now on. */
void storm_passed(void);

/* Waits for it, as long as the actors run. */
#define STORM_UNTIL(s, condition)                                                                              \
	do {                                                                                                   \
		const int64_t began_ = clock_ms();                                                             \
		while (!(condition))                                                                           \
			storm_wait((s), began_, #condition);                                                   \
	} while (0)
void storm_wait(const struct storm *s, int64_t began_ms, const char *what);

void storm_actor_start(struct storm *s, unsigned actor);
/* Without starting another one. */
void storm_actor_kill(struct storm *s, unsigned actor);
/* Stops it for a while of up to so long; the others go on. */
void storm_actor_stop(struct storm *s, unsigned actor, uint64_t most_us);
void storm_gpuwmd_kill(struct storm *s);
/* After a kill: waits for the next one. */
void storm_gpuwmd_is_back(struct storm *s);
/* Asserts that the region's users are the test and all actors, and nobody else, soon. */
void storm_check_users(const struct storm *s, const struct control *control, const struct gpuwm_region *region);

/* ---- an actor: a process ---------------------------------------------------- */

/* The first member of what a storm's actor knows. */
struct storm_actor {
	struct storm_board *board;
	struct storm_told *told;
	unsigned number;
	struct dice dice;
	struct gpuwm_client *client;
	void *stream; /* NULL: on host */
};

/* What an actor does. All but operations may be NULL. */
struct storm_part {
	const struct storm_operation *operations;
	unsigned (*mood)(const struct storm_actor *a);
	void (*acted)(struct storm_actor *a); /* after each operation */
	void (*park)(struct storm_actor *a); /* before it is parked */
	void (*parked)(struct storm_actor *a); /* again and again meanwhile */
};

/* Maps the board, connects, and makes a stream. */
void storm_actor_begin(struct storm_actor *a, int argc, char **argv, size_t board_bytes);
/* Acts until the storm is over. */
void storm_actor_work(struct storm_actor *a, const struct storm_part *part);
void storm_actor_end(struct storm_actor *a);

/* Which of them, when each has so many chances. */
unsigned storm_choose(struct dice *dice, const unsigned *chances, unsigned count);

/* The call's result, which must be 0 or one of these errors. Another one ends the actor. */
#define MAY_REFUSE(call, ...)                                                                                  \
	({                                                                                                     \
		int code_ = (call);                                                                            \
		if (!storm_code_is_among(code_, (const int[]){__VA_ARGS__, 0}))                                \
			child_fail(__FILE__, __LINE__, #call);                                                 \
		code_;                                                                                         \
	})
bool storm_code_is_among(int code, const int *codes);
/* What calls say while gpuwmd is away, or has not noticed who died. */
#define STORM_AWAY EBUSY, EDQUOT, ECONNREFUSED, ETIMEDOUT
/* Waits until it answers. GPUWM_REGION_OWN is asked for once. */
struct gpuwm_region *storm_region_open(struct storm_actor *a, const char *name, unsigned flags);

/* Streams of actors: of the stand-in for the driver; NULL on host. */
void *storm_stream_new(void);
/* Waits for all that is queued there. */
void storm_stream_wait(void *stream);
/* Pinned memory; NULL on host. */
void *storm_pinned_new(size_t bytes);
void storm_copy_in(void *stream, void *to, const void *pinned, size_t bytes);
void storm_copy_out(void *stream, void *pinned, const void *from, size_t bytes);

/* ---- workers beside one that does harm -------------------------------------- */

/* Up to STORM_ACTORS workers, and one that does harm until they have ended, which they must do well. argv: a seed and a number, 0 for
 * the first worker. They begin together, when all are ready. */
void storm_harm(process_fn *worker, unsigned workers, process_fn *harmful, uint64_t seed);
/* In each of them: it is ready. */
void storm_ready(void);

#endif
