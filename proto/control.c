#include "control.h"

#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

_Static_assert(sizeof(struct control_head) <= CONTROL_HEAD_BYTES, "the head is larger than its room");
_Static_assert(sizeof(struct control_chunk) == 64, "a chunk's entry is not one cache line");
_Static_assert(offsetof(struct control_chunk, written) % 8 == 0, "a GPU can't write the word");

static uint64_t finished_at(uint32_t chunks)
{
	return CONTROL_HEAD_BYTES + (uint64_t)chunks * sizeof(struct control_chunk);
}

uint64_t control_bytes(struct control_shape shape)
{
	const uint64_t finished = (uint64_t)shape.chunks * REGION_USERS_MAX * sizeof(uint64_t);
	const uint64_t bytes = finished_at(shape.chunks) + finished + control_blocks_bytes(shape.blocks);

	return (bytes + CONTROL_HEAD_BYTES - 1) / CONTROL_HEAD_BYTES * CONTROL_HEAD_BYTES;
}

struct control control_at(void *address, struct control_shape shape)
{
	char *base = address;
	struct control control = {
		.head = address,
		.chunks = (struct control_chunk *)(base + CONTROL_HEAD_BYTES),
		.finished = (_Atomic uint64_t *)(base + finished_at(shape.chunks)),
		.count = shape.chunks,
	};

	control.blocks = control_blocks_at(control_finished(&control, shape.chunks, 0), shape.blocks);
	return control;
}

struct control_shape control_shape(const struct control *control)
{
	return (struct control_shape){.chunks = control->count, .blocks = control->blocks.count};
}

void control_begin(const struct control *control, const struct version_id *region)
{
	control->head->magic = CONTROL_MAGIC;
	control->head->chunks = control->count;
	control->head->blocks = control->blocks.count;
	control->head->region = *region;
}

_Atomic uint64_t *control_finished(const struct control *control, uint32_t chunk, unsigned slot)
{
	return &control->finished[(uint64_t)chunk * REGION_USERS_MAX + slot];
}

/* ---- futexes ----------------------------------------------------------- */

static void futex_wake(_Atomic uint32_t *word, int most)
{
	syscall(SYS_futex, word, FUTEX_WAKE, most, NULL, NULL, 0);
}

void control_ring(struct control_bell *bell)
{
	atomic_fetch_add(&bell->rung, 1);
	if (atomic_load(&bell->sleepers) > 0)
		futex_wake(&bell->rung, INT_MAX);
}

void control_sleep(struct control_bell *bell, uint32_t seen, int64_t wait_ms)
{
	const struct timespec wait = {wait_ms / 1000, wait_ms % 1000 * 1000000};

	atomic_fetch_add(&bell->sleepers, 1);
	syscall(SYS_futex, &bell->rung, FUTEX_WAIT, seen, wait_ms < 0 ? NULL : &wait, NULL, 0);
	atomic_fetch_sub(&bell->sleepers, 1);
}

/* ---- chunks ------------------------------------------------------------- */

void control_raise(_Atomic uint64_t *word, uint64_t generation)
{
	uint64_t old = atomic_load(word);

	while (old < generation && !atomic_compare_exchange_weak(word, &old, generation))
		;
}

bool control_chunk_is_free(const struct control *control, uint32_t chunk)
{
	const struct control_chunk *entry = &control->chunks[chunk];
	const uint64_t word = atomic_load(&entry->word), generation = atomic_load(&entry->generation);
	const uint32_t holders = chunk_word_users(word, CHUNK_HOLDING);

	if (chunk_word_open(word) > 0 || chunk_word_users(word, CHUNK_WAITING) ||
	    atomic_load(&entry->written) < generation)
		return false;
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (holders >> slot & 1 && atomic_load(control_finished(control, chunk, slot)) < generation)
			return false;
	}
	return true;
}

void control_withdraw(const struct control *control, uint32_t chunk)
{
	struct control_chunk *entry = &control->chunks[chunk];
	const uint64_t generation = atomic_load(&entry->generation);
	uint64_t word = atomic_load(&entry->word);
	uint32_t awaited;

	while (!atomic_compare_exchange_weak(&entry->word, &word, chunk_word_withdrawn(word)))
		;
	awaited = chunk_word_users(word, CHUNK_WAITING);
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (awaited >> slot & 1)
			control_raise(control_finished(control, chunk, slot), generation);
	}
}

void control_forget_absent(const struct control *control, uint32_t chunk)
{
	struct control_chunk *entry = &control->chunks[chunk];
	uint64_t word, rest;
	uint32_t here = 0, gone;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++)
		here |= (uint32_t)(atomic_load(&control->head->users[slot].here) != 0) << slot;
	word = atomic_load(&entry->word);
	do {
		gone = chunk_word_users(word, CHUNK_WAITING) & ~here;
		rest = word;
		for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
			if (gone >> slot & 1)
				rest &= chunk_word_forget(slot);
		}
	} while (gone && !atomic_compare_exchange_weak(&entry->word, &word, rest));
}

/* ---- gpuwmd's part ----------------------------------------------------- */

/* The chunk's writer may have died before it raised the words of those from whom it had withdrawn. Nobody takes this generation any
 * more. */
static void finish_withdrawn(const struct control *control, uint32_t chunk)
{
	const struct control_chunk *entry = &control->chunks[chunk];
	const uint64_t generation = atomic_load(&entry->generation);
	const uint64_t word = atomic_load(&entry->word);

	if (chunk_word_open(word) > 0)
		return;
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (chunk_word_state(word, slot) == CHUNK_NONE)
			control_raise(control_finished(control, chunk, slot), generation);
	}
}

/* Whether a user that comes now may still take the use of the chunk that the word is of: its writer has not said yet who reads it, or
 * others may come. */
static bool may_be_taken(uint64_t word, unsigned writer)
{
	return chunk_word_open(word) > 0 ||
	       (writer < REGION_USERS_MAX && chunk_word_state(word, writer) == CHUNK_HOLDING);
}

/* The former user of the slot has finished with all generations. If the new user may take the one that is in use, its word must not
 * say that. Otherwise it goes on to say so, for streams that wait for the former user. A generation that is being allocated is later
 * than what the word says. */
static void reset_finished(const struct control *control, uint32_t chunk, unsigned slot)
{
	const struct control_chunk *entry = &control->chunks[chunk];
	const uint64_t generation = atomic_load(&entry->generation);
	const uint64_t word = atomic_load(&entry->word);
	const bool may_come =
		chunk_word_is_of(word, generation) && may_be_taken(word, atomic_load(&entry->writer));

	atomic_store(control_finished(control, chunk, slot),
		     may_come && generation > 0 ? generation - 1 : generation);
}

void control_user_came(const struct control *control, unsigned slot, uint32_t pid, const char *command)
{
	struct control_user *user = &control->head->users[slot];

	for (uint32_t i = 0; i < control->count; i++) {
		/* A writer may have named the last user of the slot just when that went. */
		atomic_fetch_and(&control->chunks[i].word, chunk_word_forget(slot));
		reset_finished(control, i, slot);
	}
	control_blocks_forget(&control->blocks, slot);
	memset(user->command, 0, sizeof(user->command));
	strncpy(user->command, command, sizeof(user->command) - 1);
	atomic_store(&user->pid, pid);
	atomic_fetch_add(&user->generation, 1);
	atomic_store(&user->here, 1);
}

/* Readers of what it had offered go on, and learn that the bytes never came. Another process may be reusing the entry: then `writer`
 * is that process, or the last generation was written. */
static void lose_unwritten(struct control_chunk *chunk, unsigned slot)
{
	const uint64_t generation = atomic_load(&chunk->generation);
	uint64_t written = atomic_load(&chunk->written);

	if (written >= generation || atomic_load(&chunk->writer) != slot)
		return;
	atomic_store(&chunk->lost, generation);
	atomic_compare_exchange_strong(&chunk->written, &written, generation);
}

/* Returns whether the user held the chunk, or was awaited. A writer that names it after it was looked at here finds that the user is not
 * `here`: control_forget_absent. */
static bool let_go(const struct control *control, uint32_t i, unsigned slot)
{
	struct control_chunk *chunk = &control->chunks[i];
	_Atomic uint64_t *finished = control_finished(control, i, slot);
	const uint64_t generation = atomic_load(&chunk->generation);
	const enum chunk_state state = chunk_word_state(atomic_load(&chunk->word), slot);
	const bool held =
		state == CHUNK_WAITING || (state == CHUNK_HOLDING && atomic_load(finished) < generation);

	lose_unwritten(chunk, slot);
	if (state != CHUNK_NONE)
		atomic_fetch_and(&chunk->word, chunk_word_forget(slot));
	control_raise(finished, atomic_load(&chunk->generation));
	if (atomic_load(&chunk->writer) == slot) {
		control_forget_absent(control, i);
		finish_withdrawn(control, i);
	}
	return held;
}

uint32_t control_user_left(const struct control *control, unsigned slot)
{
	struct control_head *head = control->head;
	uint32_t mine = slot + 1, held = 0;

	atomic_store(&head->users[slot].here, 0);
	for (uint32_t i = 0; i < control->count; i++)
		held += let_go(control, i, slot);
	held += control_blocks_forget(&control->blocks, slot);
	/* It may also have died before it woke others, or when it had been woken in their place. */
	atomic_compare_exchange_strong(&head->lock, &mine, 0);
	futex_wake(&head->lock, INT_MAX);
	control_ring(&head->freed);
	control_ring(&head->put);
	control_ring(&head->got);
	return held;
}

void control_ended(const struct control *control, enum control_end end, unsigned by)
{
	atomic_store(&control->head->ended_by, by);
	atomic_store(&control->head->ended, end);
	control_ring(&control->head->freed);
	control_ring(&control->head->put);
	control_ring(&control->head->got);
	futex_wake(&control->head->lock, INT_MAX);
}

static const char *chunk_damage(const struct control_chunk *chunk, uint64_t bytes, uint32_t here)
{
	const uint64_t word = atomic_load(&chunk->word), generation = atomic_load(&chunk->generation);
	const uint64_t offset = atomic_load(&chunk->offset), has = atomic_load(&chunk->bytes);
	/* Who allocates the entry stores its place between the word and the generation. */
	const bool has_place = !chunk_word_is_free(word) && chunk_word_is_of(word, generation) &&
			       atomic_load(&chunk->word) == word;

	/* A writer may wait for one that has just left: control_forget_absent. */
	if (chunk_word_users(word, CHUNK_HOLDING) & ~here)
		return "a chunk is held by a user that there is not";
	if (has_place && (offset > bytes || has > bytes - offset))
		return "a chunk lies outside of the region";
	return NULL;
}

const char *control_damage(const struct control *control, const struct version_id *region, uint64_t bytes,
			   uint32_t here)
{
	const struct control_head *head = control->head;
	const char *wrong = NULL;

	if (head->magic != CONTROL_MAGIC || head->chunks != control->count ||
	    head->blocks != control->blocks.count || !version_id_equal(&head->region, region))
		return "its head was written over";
	if (atomic_load(&head->ended) != CONTROL_OPEN)
		return "its head says that it has ended";
	if (atomic_load(&head->lock) > REGION_USERS_MAX)
		return "its lock has a state that there is not";
	for (uint32_t i = 0; !wrong && i < control->count; i++)
		wrong = chunk_damage(&control->chunks[i], bytes, here);
	return wrong ? wrong : control_blocks_damage(&control->blocks, here);
}
