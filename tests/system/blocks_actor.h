/* A process that uses a region of blocks as the test tells it. */
#ifndef GPUWM_TESTS_BLOCKS_ACTOR_H
#define GPUWM_TESTS_BLOCKS_ACTOR_H

#include "blocks_storm.h"

#define ACTOR_BLOCKS 8

/* Of blocks: the keys blocks_key(first) and on, or those named. */
struct actor_wish {
	char what;
	uint32_t first, count;
	int64_t wait_ms;
	struct gpuwm_block blocks[ACTOR_BLOCKS];
};

struct actor_answer {
	int code; /* the library's */
	size_t count; /* done, held, found or dropped */
	struct gpuwm_block blocks[ACTOR_BLOCKS];
	char message[512];
};

enum {
	ACTOR_OPEN = 'o', /* `count` is the flags */
	ACTOR_CLOSE = 'c',
	ACTOR_CHECK = 'k',
	ACTOR_RESERVE = 'r',
	ACTOR_FILL = 'w', /* the bytes of key `first` and on; `wait_ms` is how many 8ths of them */
	ACTOR_PUBLISH = 'p',
	ACTOR_ABANDON = 'a',
	ACTOR_FIND = 'f',
	ACTOR_HOLD = 'h',
	ACTOR_HOLD_THESE = 't',
	ACTOR_VERIFY = 'v', /* -EBADMSG: the bytes are not of key `first` and on */
	ACTOR_RELEASE = 'e',
	ACTOR_DROP = 'd',
	ACTOR_ADDRESS = 'x', /* -ENXIO: block 0 has no address */
	ACTOR_SCRIBBLE = 's',
	ACTOR_END = 'q', /* without an answer */
};

/* Starts it; it opens this region with these flags, and has done so. */
struct process actor_start(const char *region, unsigned flags);
/* Sends a wish; waits for its answer. */
void actor_send(struct process *p, const struct actor_wish *wish);
/* Whether the answer is there. */
bool actor_is_done(struct process *p);
/* Waits until it waits for blocks; fails if it answers instead. */
void actor_waits(struct process *p);
const struct actor_answer *actor_hear(struct process *p);
/* Both. The answer is valid until the next one. */
const struct actor_answer *actor_does(struct process *p, const struct actor_wish *wish);
#define ACTOR(p, ...) actor_does((p), &(const struct actor_wish){__VA_ARGS__})
/* The same, which must not fail, or must fail with this code. */
#define ACTOR_OK(p, ...)                                                                                       \
	({                                                                                                     \
		const struct actor_answer *answer_ = ACTOR(p, __VA_ARGS__);                                    \
		cr_assert(answer_->code == 0, "%s: %d: %s", #__VA_ARGS__, answer_->code, answer_->message);    \
		answer_;                                                                                       \
	})
#define ACTOR_FAILS(errno_, p, ...)                                                                            \
	({                                                                                                     \
		const struct actor_answer *answer_ = ACTOR(p, __VA_ARGS__);                                    \
		cr_assert(answer_->code == -(errno_), "%s: %d instead of -%s: %s", #__VA_ARGS__,               \
			  answer_->code, #errno_, answer_->message);                                           \
		answer_;                                                                                       \
	})
/* Closes the region and ends it. */
void actor_end(struct process *p);

#endif
