/* The storm over a pool: processes own it in turn, hand its chunks to each other, and are killed, as gpuwmd is. A board, which all of them
 * map, has what the test knows: who holds what, which tokens were sent, and how many operations there were. */
#ifndef GPUWM_TESTS_POOL_STORM_H
#define GPUWM_TESTS_POOL_STORM_H

#include "storm.h"

#include <gpuwm/region.h>

#include <stdatomic.h>

#define POOL_WORKERS 8
#define POOL_BYTES MB(2) /* a device's granularity */
#define POOL_CHUNKS 24
#define POOL_LARGEST KB(192) /* of one chunk: a few fill the pool */
#define POOL_TTL_MS 100 /* a seat for a reader that died is given up after so long */
#define POOL_HELD 6 /* chunks that one process fills, or reads, at once */
#define POOL_POSTS 16 /* tokens that wait for one process */
#define POOL_QUEUE_ITEMS 8

/* What a worker does; each counts as one operation. */
enum pool_op {
	POOL_ALLOC,
	POOL_OFFER,
	POOL_DISCARD,
	POOL_WITHDRAW,
	POOL_AWAIT,
	POOL_TAKE,
	POOL_REPLAY,
	POOL_FORGE,
	POOL_GET,
	POOL_FINISH,
	POOL_REOPEN,
	POOL_LOOK,
	POOL_OPS,
};

enum pool_state { POOL_STARTING, POOL_WORKING, POOL_PARKED, POOL_ENDED };

/* A token, and what the bytes of its chunk are made of. */
struct pool_note {
	struct gpuwm_token token;
	uint64_t key;
};

/* A chunk that a worker has. */
struct pool_held {
	struct gpuwm_chunk *chunk;
	struct pool_note note; /* without the token, of one that is being filled */
};

/* Written by the worker. What it holds is true while it is parked. */
struct pool_told {
	_Atomic uint32_t state, slot;
	_Atomic bool owns, probed;
	uint32_t filling, reading;
	struct gpuwm_token tokens[POOL_HELD]; /* of what it reads */
	uint64_t filled_at[POOL_HELD]; /* the offsets of what it fills */
	uint64_t done[POOL_OPS], refused[POOL_OPS];
};

/* Tokens for one worker. The owner posts them; an owner that dies amid leaves the ring as it was. */
struct pool_posts {
	_Atomic uint64_t end, first;
	struct pool_note notes[POOL_POSTS];
};

struct pool_board {
	_Atomic uint64_t operations, granted; /* nobody begins one beyond those granted */
	_Atomic bool park, probe,
		finish; /* probe: while all are parked, the owner shows that all free bytes are there */
	struct pool_told told[POOL_WORKERS];
	struct pool_posts posts[POOL_WORKERS];
};

/* ---- a worker ------------------------------------------------------------ */

struct pool_worker {
	struct pool_board *board;
	struct pool_told *told;
	unsigned number;
	struct dice dice;
	struct gpuwm_client *client;
	struct gpuwm_region *pool, *queue;
	bool owns;
	struct pool_held filling[POOL_HELD], reading[POOL_HELD];
	unsigned filling_count, reading_count;
	struct pool_note sent[POOL_POSTS], seen[POOL_POSTS]; /* the last ones */
	uint64_t sent_count, seen_count;
	void *stream; /* NULL: on host */
};

/* argv: the board's path, the worker's number, a seed. */
int pool_worker_main(int argc, char **argv);

/* Whether all bytes of the chunk are made of this key. */
void pool_fill(const struct gpuwm_chunk *chunk, uint64_t key);
bool pool_holds(const struct gpuwm_chunk *chunk, uint64_t key);
/* Whether the call was refused with one of these codes (end with 0), or succeeded. Another code ends the worker. */
#define MAY_REFUSE(call, ...)                                                                                  \
	({                                                                                                     \
		int code_ = (call);                                                                            \
		if (!pool_code_is_among(code_, (const int[]){__VA_ARGS__, 0}))                                 \
			child_fail(__FILE__, __LINE__, #call);                                                 \
		code_;                                                                                         \
	})
bool pool_code_is_among(int code, const int *codes);

/* Makes a stream on the stand-in for the driver; NULL on host. Waits for all that is queued in it. */
void *pool_stream_new(void);
void pool_stream_wait(void *stream);

/* One operation. Return 0, or the code of a refusal that may happen. */
int pool_op_alloc(struct pool_worker *w);
int pool_op_offer(struct pool_worker *w);
int pool_op_discard(struct pool_worker *w);
int pool_op_withdraw(struct pool_worker *w);
int pool_op_await(struct pool_worker *w);
int pool_op_take(struct pool_worker *w);
int pool_op_replay(struct pool_worker *w);
int pool_op_forge(struct pool_worker *w);
int pool_op_get(struct pool_worker *w);
int pool_op_finish(struct pool_worker *w);
int pool_op_look(struct pool_worker *w);

/* ---- the test ------------------------------------------------------------ */

struct pool_storm {
	struct gpuwmd *d;
	uint64_t seed;
	struct dice dice;
	struct pool_board *board;
	char path[160]; /* the board's */
	struct process workers[POOL_WORKERS];
	uint64_t starts;
	struct gpuwm_client *client;
	struct gpuwm_region *pool; /* the test is a user too */
	bool is_away; /* gpuwmd, after a kill */
	unsigned kills, owner_kills, gpuwmd_kills, checks;
};

/* Everything, while all workers are parked. */
void pool_check(struct pool_storm *s);

#endif
