/* A model of one chunk's entry in a region's control memory, for a search through all orders of its atomic operations: a writer, two
 * readers, their streams, and gpuwmd. A compare-and-swap that is tried until it succeeds is one step. */
#ifndef GPUWM_TESTS_SUPPORT_PROTO_CHUNK_MODEL_H
#define GPUWM_TESTS_SUPPORT_PROTO_CHUNK_MODEL_H

#include "proto/chunk_word.h"
#include "search.h"

enum { WRITER, READERS = 1, PROCESSES = 3 };

enum place {
	IDLE,
	DEAD, /* gpuwmd has not noticed it yet */
	GONE,
	/* The writer. */
	REUSE, /* it has seen a word that may be free */
	ALLOCATE, /* it has found the entry free */
	FILLING_SOON, /* the word is stored, the generation is not */
	FILLING,
	OFFERING, /* written, or queued behind the stream's writes */
	OFFERED, /* the word is stored */
	CHECKING, /* it has looked who is there */
	DISCARDING,
	WITHDRAWN, /* the word is stored; `mask` was awaited */
	/* A reader with a token of `generation`. */
	TAKING, /* the entry's generation is the token's */
	TAKEN, /* the word is stored */
	CURRENT, /* the entry's generation is still the token's */
	OTHER, /* it is not: the word looked like the token's */
	HOLDING,
	FINISHED, /* the word is stored */
};

/* What gpuwmd does next for `slot`. */
enum duty { NOTHING, LOOK, LOSE, FORGET, RAISE, LET_GO, COME_LOOK, COME_RESET, COME_IN };

struct process {
	uint8_t place, generation, mask, queued; /* queued: the generation that its stream writes next */
};

/* Generations are small numbers here; `stride` makes those that the word sees of them. */
struct model {
	uint64_t word;
	uint8_t generation, written, lost, here;
	uint8_t finished[PROCESSES],
		awaited[PROCESSES]; /* awaited: a stream waits for that generation of the user's word */
	uint8_t ended, known; /* known: the latest generation with a token */
	uint8_t deaths;
	struct process processes[PROCESSES];
	uint8_t duty, slot, seen_generation, seen_written, seen_over;
	uint8_t unused[2];
};
_Static_assert(sizeof(struct model) == 40, "states are compared byte by byte");

/* What this search goes through. */
struct bounds {
	uint64_t stride;
	unsigned generations, deaths;
	bool reuses_slots, ends, has_streams;
};
extern struct bounds bounds;

uint64_t real(unsigned generation);
uint8_t larger(uint8_t a, uint8_t b);
uint32_t bits(uint64_t word, enum chunk_state state);
/* The process goes to this place. */
void go(struct search *search, struct model m, unsigned slot, enum place place, const char *step);

/* What follows by the writer, by the reader in this slot, by streams and deaths, and by gpuwmd. */
void writer_steps(struct search *search, const struct model *m);
void reader_steps(struct search *search, const struct model *m, unsigned slot);
void stream_steps(struct search *search, const struct model *m, unsigned slot);
void death_steps(struct search *search, const struct model *m, unsigned slot);
void gpuwmd_steps(struct search *search, const struct model *m);

#endif
