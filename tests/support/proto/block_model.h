/* A model of the blocks in a region's control memory, for a search through all orders of its atomic operations: processes that fill,
 * hold and drop the blocks of two keys, which share a bucket, and gpuwmd. A compare-and-swap that is tried until it succeeds is one step;
 * every other load and store is a step of its own. client/region/blocks_*.c is what it is a model of. */
#ifndef GPUWM_TESTS_SUPPORT_PROTO_BLOCK_MODEL_H
#define GPUWM_TESTS_SUPPORT_PROTO_BLOCK_MODEL_H

#include "proto/block_word.h"
#include "search.h"

enum { BLOCKS_MOST = 2, SLOTS_MOST = 2, PROCESSES_MOST = 3 };

enum place {
	IDLE,
	DEAD, /* gpuwmd has not noticed it yet */
	GONE,
	/* A look at the slot `at` of the bucket, for `aim`. */
	SEE_SLOT,
	SEE_WORD,
	SEE_NAME_A, /* a name has two halves here, which are read and written one after the other */
	SEE_NAME_B,
	SEE_WORD_AGAIN,
	/* What follows. */
	OWN,
	WRITE_NAME_A,
	WRITE_NAME_B,
	DROP_VICTIM, /* all slots are alive: the block of the slot that is to be taken is dropped */
	TAKE_SLOT,
	FILL,
	FILLED,
	HOLD,
	HOLDING,
	DROP,
};

enum aim { RESERVE, PUT, TO_HOLD, TO_DROP, FIND, BY_NUMBER };

struct process {
	uint8_t place, aim, key, at;
	uint8_t number, generation; /* of the slot that it looks at, of a block that it holds or drops */
	uint8_t mine, mine_generation; /* 1 + the number of the block that it owns */
	uint8_t slot, is_void, seen_number,
		seen_generation; /* 1 + the slot that it is to take, and what was there */
};

/* Numbers of blocks in slots are one more than the number. */
struct model {
	uint64_t words[BLOCKS_MOST];
	uint8_t names[BLOCKS_MOST][2];
	uint8_t bytes[BLOCKS_MOST]; /* the key whose bytes the block has; 0: others, or half of them */
	uint8_t slots[SLOTS_MOST][2]; /* number and generation */
	struct process processes[PROCESSES_MOST];
	uint8_t deaths;
	uint8_t forgets,
		forgotten; /* gpuwmd: 1 + the process whose blocks it looks through; how many it has done */
	uint8_t comes; /* it does that for a process that comes */
	uint8_t found_wrong; /* a process has found a key whose block has other bytes */
	uint8_t unused[1];
};
_Static_assert(sizeof(struct model) == 72, "states are compared byte by byte");

/* What is wrong on purpose, to see that the search finds it. */
enum breakage {
	SOUND,
	PUTS_BEFORE_NAME,
	PUBLISHES_UNFILLED,
	HOLDS_ANY_USE, /* a hold does not look at the generation */
	TAKES_SLOTS_ALIVE, /* without dropping the block of the slot */
	FORGETS_NOTHING,
};

/* What this search goes through. */
struct block_bounds {
	unsigned processes, blocks, keys, slots, generations, deaths;
	unsigned aims[PROCESSES_MOST]; /* what each process does, a bit for each aim but PUT */
	enum breakage breakage;
};
extern struct block_bounds block_bounds;

uint32_t generation_of(const struct model *m, unsigned block);
void block_go(struct search *search, struct model m, unsigned process, enum place place, const char *step);

/* What follows by a process that looks at the index, by one that fills, holds or drops, and by deaths and gpuwmd. */
void look_steps(struct search *search, const struct model *m, unsigned process);
void block_steps(struct search *search, const struct model *m, unsigned process);
void block_gpuwmd_steps(struct search *search, const struct model *m);

#endif
