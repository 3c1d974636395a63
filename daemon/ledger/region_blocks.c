/* Blocks, by what their words say. There may be 262,144 of them, so this takes care to be quick: 1 ms at the most. */
#include "region.h"

#include "../../proto/wire/messages_region.h"

/* ---- how many are what ---- */

/* A block of a state that there is not counts for nothing: region_damage finds it. */
static void blocks_add(const struct control_blocks *blocks, struct region_figures *ret)
{
	uint64_t owned = 0, ready = 0, held = 0;

	for (uint32_t i = 0; i < blocks->count; i++) {
		const uint64_t word = atomic_load(&blocks->words[i]);
		const bool is_ready = block_word_state(word) == BLOCK_READY;
		const bool has_holders = block_word_holders(word) != 0;

		owned += block_word_state(word) == BLOCK_OWNED;
		ready += is_ready & !has_holders;
		held += is_ready & has_holders;
	}
	ret->blocks_owned = owned;
	ret->blocks_ready = ready;
	ret->blocks_held = held;
}

static void blocks_count(const struct region *region, struct region_figures *ret)
{
	blocks_add(&region->control.blocks, ret);
	ret->bytes_used = (ret->blocks_owned + ret->blocks_ready + ret->blocks_held) * region->is.block_bytes;
}

/* ---- how many each user has ----
 * 26 users may hold each block, so counting bit by bit would take too long. planes[p] has bit p of 32 numbers, one for each bit of a word:
 * words are added to all numbers at once. */

#define PLANES 20
#define GROUP 8

_Static_assert(REGION_BLOCKS_MAX < 1 << PLANES, "a number has as many bits as there are planes");

/* Adds three numbers of one bit: *low is the sum's lower bit. Returns the higher one. */
static uint32_t add_bits(uint32_t *low, uint32_t a, uint32_t b)
{
	const uint32_t sum = *low ^ a, high = (*low & a) | (sum & b);

	*low = sum ^ b;
	return high;
}

/* Eight words make one carry into planes[3]. */
static void add_group(uint32_t planes[PLANES], const uint32_t words[GROUP])
{
	uint32_t twos, fours, carry;

	twos = add_bits(&planes[0], words[0], words[1]);
	fours = add_bits(&planes[1], twos, add_bits(&planes[0], words[2], words[3]));
	twos = add_bits(&planes[0], words[4], words[5]);
	carry = add_bits(&planes[2], fours,
			 add_bits(&planes[1], twos, add_bits(&planes[0], words[6], words[7])));
	for (size_t p = 3; carry; p++) {
		const uint32_t next = planes[p] & carry;

		planes[p] ^= carry;
		carry = next;
	}
}

static void blocks_look(const struct region *region, struct region_figures *ret)
{
	const struct control_blocks *blocks = &region->control.blocks;
	uint32_t planes[PLANES] = {0};

	blocks_count(region, ret);
	for (uint32_t i = 0; i < blocks->count; i += GROUP) {
		uint32_t words[GROUP] = {0};

		/* Who owns a block has it, and so does who holds it. */
		for (uint32_t k = 0; k < GROUP && i + k < blocks->count; k++) {
			const uint64_t word = atomic_load(&blocks->words[i + k]);

			words[k] = block_word_state(word) == BLOCK_OWNED
					   ? UINT32_C(1) << block_word_writer(word)
					   : block_word_holders(word);
		}
		add_group(planes, words);
	}
	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		ret->holds[slot] = 0;
		for (size_t p = 0; p < PLANES; p++)
			ret->holds[slot] |= (uint64_t)(planes[p] >> slot & 1) << p;
	}
}

/* control_damage looks at the words of blocks. */
const struct region_kind region_kind_blocks = {
	.name = REGION_KIND_BLOCKS,
	.item = "block",
	.has_exact_bytes = true,
	.count = blocks_count,
	.look = blocks_look,
};
