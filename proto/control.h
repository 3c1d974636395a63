/* The control memory of a region: a memfd that gpuwmd makes, seals against resizing, and gives to every user of the region. All of
 * them may write it, so nobody trusts what it says: sizes come from gpuwmd's answer, and offsets are checked before they are used.
 * gpuwmd maps it too. It clears the states of processes that have exited, and so lets go what they held.
 *
 *   offset 0                          struct control_head
 *   CONTROL_HEAD_BYTES                struct control_chunk, as many as the region has
 *   behind them                       a word for each chunk and user: control_finished
 *   or, of a region with blocks, behind the head: control_blocks.h
 *
 * Words that a GPU writes or waits for (control_chunk.written, control_finished) have 8 bytes, and hold a generation. Who waits
 * for a generation goes on at a later one too. */
#ifndef GPUWM_PROTO_CONTROL_H
#define GPUWM_PROTO_CONTROL_H

#include "chunk_word.h"
#include "control_blocks.h"
#include "names.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

#define CONTROL_MAGIC UINT64_C(0x314c5443776d7067) /* "gpwmCTL1" */
#define CONTROL_HEAD_BYTES 4096
#define CONTROL_COMMAND_BYTES 16 /* TASK_COMM_LEN */

/* Why a region takes no new work. */
enum control_end {
	CONTROL_OPEN,
	CONTROL_OWNER_DIED, /* ended_by: its slot */
	CONTROL_OWNER_CLOSED, /* ended_by: its slot */
	CONTROL_REMOVED,
	CONTROL_DAMAGED, /* somebody wrote what no user writes */
	CONTROL_ENDS,
};

/* A user of the region, as gpuwmd knows it. What it says of a process stays until the slot is given to the next one. */
struct control_user {
	_Atomic uint32_t generation; /* of the slot: counts its users; 0: it had none */
	_Atomic uint32_t here; /* 0: it has exited, or closed the region */
	_Atomic uint32_t pid; /* 0: of another PID namespace */
	char command[CONTROL_COMMAND_BYTES];
	uint32_t unused;
};

/* A futex, and how many sleep on it: who changes the word wakes only if somebody does. */
struct control_bell {
	_Atomic uint32_t rung, sleepers;
};

struct control_head {
	uint64_t magic;
	uint32_t chunks, blocks;
	struct version_id region;
	_Atomic uint32_t ended, ended_by; /* enum control_end */
	/* Rung whenever a user finishes with a chunk or block, a block becomes READY, a user dies, or the region ends. */
	struct control_bell freed;
	/* A queue: the lock is 1 + the slot of the process that has it, and a futex. gpuwmd opens it when that process has
	 * exited. Messages are numbered; cell NUMBER modulo the number of cells has the bytes. */
	_Atomic uint32_t lock, lock_sleepers;
	_Atomic uint64_t first, end; /* the oldest message; the number of the next one */
	_Atomic uint32_t closed; /* nothing is put any more */
	struct control_bell put, got;
	_Atomic uint64_t clock; /* counts the wishes for blocks: control_blocks.used */
	struct control_user users[REGION_USERS_MAX];
};

/* Who allocates the entry stores `word` first (chunk_word_filling), then `writer`, offset, bytes and since_ms, and `generation` last. The
 * other programs go by that order: gpuwmd, when the process dies in between, and a reader, whose token is out of date if the word is
 * not of its generation any more. */
struct control_chunk {
	_Atomic uint64_t word; /* chunk_word.h */
	_Atomic uint64_t generation; /* counts the uses of this entry; 0: none yet */
	_Atomic uint64_t written; /* the generation whose bytes are there */
	_Atomic uint64_t offset, bytes; /* of the region's memory */
	_Atomic uint64_t since_ms; /* CLOCK_BOOTTIME: when it was offered, or allocated */
	/* The generation whose writer died before its bytes were there. gpuwmd sets it before it sets `written`. */
	_Atomic uint64_t lost;
	_Atomic uint32_t writer; /* the slot of who allocated it */
	uint32_t unused;
};

/* The head and the entries of a control memory that is mapped. */
struct control {
	struct control_head *head;
	struct control_chunk *chunks;
	_Atomic uint64_t *finished; /* control_finished */
	uint32_t count; /* of chunks, as gpuwmd said */
	struct control_blocks blocks;
};

/* What a region's control memory has room for: chunks, or blocks, or neither. */
struct control_shape {
	uint32_t chunks, blocks;
};
/* How many bytes it has, whole pages. */
uint64_t control_bytes(struct control_shape shape);
/* The parts of a mapped control memory. */
struct control control_at(void *address, struct control_shape shape);
struct control_shape control_shape(const struct control *control);
/* Fills in the head of new memory, which reads as zeros. */
void control_begin(const struct control *control, const struct version_id *region);
/* The word in which a user's stream says which generation of the chunk it has finished with. Streams wait for it, so it says so of
 * every user that was named or has taken the chunk, however it ended. A user that finishes without a stream changes the chunk's word
 * first, and then raises this one. A user that finishes in a stream leaves the chunk's word alone: control_chunk_is_free knows. */
_Atomic uint64_t *control_finished(const struct control *control, uint32_t chunk, unsigned slot);
/* Sets a word that holds a generation to this one, unless it holds a later one. */
void control_raise(_Atomic uint64_t *word, uint64_t generation);
/* Whether the chunk's writer may use the entry again: nobody may take it, those who held it have finished, in a stream or without
 * one, and its bytes were written, so that no stream of the writer's still does. A discarded chunk counts as written. */
bool control_chunk_is_free(const struct control *control, uint32_t chunk);
/* Nobody may take the chunk any more: its writer's part. The users that were awaited count as finished. */
void control_withdraw(const struct control *control, uint32_t chunk);
/* The chunk waits no more for users that are not there. The writer calls it when it has stored the word of an offer: a user may have
 * left after the writer had looked for it. */
void control_forget_absent(const struct control *control, uint32_t chunk);

/* Rings the bell, and wakes all who sleep on it. Async-signal-safe. */
void control_ring(struct control_bell *bell);
/* Sleeps until the bell rings after `seen`, or for wait_ms (-1: for ever). It may return earlier. The caller looks again. */
void control_sleep(struct control_bell *bell, uint32_t seen, int64_t wait_ms);

/* A user has got this slot: gpuwmd's part. Chunks that are in use count as not finished by it. gpuwmd gives the slot that has been
 * unused for longest: streams may still wait for its former user. */
void control_user_came(const struct control *control, unsigned slot, uint32_t pid, const char *command);
/* The process in this slot has exited, or has given the slot back: nothing waits for it any more. Its chunks that others wait for
 * become lost. Opens the lock if it has it. Returns how many chunks it held, or was expected to take, and how many blocks it owned or
 * held. */
uint32_t control_user_left(const struct control *control, unsigned slot);
/* The region takes no new work; wakes everybody. by: the slot, for ended_by. */
void control_ended(const struct control *control, enum control_end end, unsigned by);
/* NULL: nothing is wrong with a region that has not ended; else what no user would have written, for an error message. bytes: of the
 * region's memory; here: the slots that gpuwmd has ever given, a bit for each. Other processes may write meanwhile. */
const char *control_damage(const struct control *control, const struct version_id *region, uint64_t bytes,
			   uint32_t here);

#endif
