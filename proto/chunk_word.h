/* The word of a chunk: who has still to finish with it. A chunk of a region is handed from its writer to readers without a lock and
 * without gpuwmd, by compare-and-swap on this word. The functions here compute the next word from the last one, and touch no
 * memory, so that a test can go through all words of a small region. control.h has the memory.
 *
 *   bits 0 to 51    a state for each of the region's users, two bits each
 *   bits 52 to 55   readers that may still come, whoever they are: `open`
 *   bits 56 to 63   the lowest byte of the chunk's generation
 *
 *            offer, named            take              finish
 *   NONE ───────────────▶ WAITING ───────▶ HOLDING ───────────▶ DONE
 *     └──────────────────────────────────────▶│      a stranger, if open > 0, which falls by one
 *
 * Only a user changes its own state, but for three cases: the chunk's writer names readers when it offers the chunk, and withdraws
 * from those that did not come; gpuwmd sets the state of a process that has exited to NONE. The chunk is free when nobody is WAITING
 * or HOLDING and none may come: then nobody can change the word but the writer. */
#ifndef GPUWM_PROTO_CHUNK_WORD_H
#define GPUWM_PROTO_CHUNK_WORD_H

#include "../base/limits.h"

#include <stdbool.h>
#include <stdint.h>

enum chunk_state { CHUNK_NONE, CHUNK_WAITING, CHUNK_HOLDING, CHUNK_DONE };

/* The state of the user in this slot (0 to REGION_USERS_MAX - 1). */
enum chunk_state chunk_word_state(uint64_t word, unsigned slot);
/* How many more readers may come that are not named. */
unsigned chunk_word_open(uint64_t word);
/* The users in this state, a bit for each slot. */
uint32_t chunk_word_users(uint64_t word, enum chunk_state state);
/* Whether nobody holds the chunk and nobody may take it. */
bool chunk_word_is_free(uint64_t word);
/* Whether the word may be of this generation: eight bits of it are. */
bool chunk_word_is_of(uint64_t word, uint64_t generation);

/* The word of a chunk that its writer fills: only the writer holds it. */
uint64_t chunk_word_filling(uint64_t generation, unsigned writer);
/* The writer has filled the chunk: the named users may take it once each, and `open` others. A writer that names itself may take it
 * as a reader too. named may have bits of slots below REGION_USERS_MAX only; open is at most CHUNK_OPEN_MAX. */
uint64_t chunk_word_offered(uint64_t word, unsigned writer, uint32_t named, unsigned open);
/* The user takes the chunk. Sets *ret. It takes only what it will finish: who waits for bytes waits before it takes. When the word is
 * stored, the user looks at the entry's generation again: if that is not the token's, although eight bits of it are, the user has
 * taken the generation that is there now, and finishes with it at once. Fails with
 *   -ESTALE    The word is of another generation, or the writer withdrew it: nobody may come any more.
 *   -EALREADY  The user holds the chunk, or has finished with it: a reader counts once. */
int chunk_word_take(uint64_t word, unsigned slot, uint64_t generation, uint64_t *ret);
/* The user has finished with this generation. Sets *ret. Fails with -EALREADY if it does not hold it. */
int chunk_word_finish(uint64_t word, unsigned slot, uint64_t generation, uint64_t *ret);
/* Nobody may take the chunk any more. Those who hold it finish. */
uint64_t chunk_word_withdrawn(uint64_t word);
/* The bits to keep, by an atomic and, so that a user's state becomes NONE. */
uint64_t chunk_word_forget(unsigned slot);

#endif
