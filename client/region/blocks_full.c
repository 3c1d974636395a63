/* How many blocks are in use, and by whom. */
#include "blocks.h"

#include <errno.h>
#include <stdio.h>

/* What each user has of the blocks. */
struct shares {
	uint32_t owned, held; /* blocks in all */
	uint32_t of[REGION_USERS_MAX];
};

static void count_word(struct shares *shares, uint64_t word)
{
	const uint32_t holders = block_word_holders(word);
	const unsigned writer = block_word_writer(word);

	for (unsigned slot = 0; holders && slot < REGION_USERS_MAX; slot++)
		shares->of[slot] += holders >> slot & 1;
	shares->held += holders != 0;
	if (holders || block_word_state(word) != BLOCK_OWNED)
		return;
	shares->owned++;
	if (writer < REGION_USERS_MAX)
		shares->of[writer]++;
}

/* NULL: nothing is wrong. The words were counted before: a user whose slot was unused until now may have come in between. */
static const char *blocks_damage_of(const struct blocks *blocks, const struct shares *shares)
{
	const struct control_head *head = blocks->region->control.head;

	for (unsigned slot = 0; slot < REGION_USERS_MAX; slot++) {
		if (shares->of[slot] > 0 && atomic_load(&head->users[slot].generation) == 0)
			return "a block is held or filled by a user that there is not";
	}
	return control_blocks_damage(&blocks->shared, (UINT32_C(1) << REGION_USERS_MAX) - 1);
}

int blocks_are_full(const struct blocks *blocks, bool in_bucket, struct error *error)
{
	const struct gpuwm_region *region = blocks->region;
	struct shares shares = {0};
	char who[REGION_USER_TEXT];
	const char *damage;
	unsigned most = 0;

	for (uint32_t i = 0; i < blocks->shared.count; i++)
		count_word(&shares, atomic_load(&blocks->shared.words[i]));
	damage = blocks_damage_of(blocks, &shares);
	if (damage)
		return error_set(error, -EUCLEAN, "remove the region, and make another one",
				 "the control memory of region %s says what no user writes: %s",
				 region_title(region), damage);
	for (unsigned slot = 1; slot < REGION_USERS_MAX; slot++) {
		if (shares.of[slot] > shares.of[most])
			most = slot;
	}
	region_user_text(region, most, who);
	return error_set(error, -EAGAIN, "release blocks sooner, wait for longer, or make a larger region",
			 "region %s has no room for a block%s: of %u blocks, %u are being filled and %u are "
			 "held. %s has most of them, %u",
			 region_title(region), in_bucket ? " of this key, whose bucket is full" : "",
			 blocks->shared.count, shares.owned, shares.held, who, shares.of[most]);
}

int gpuwm_blocks_figures(const struct gpuwm_region *region, struct gpuwm_blocks_figures *ret_figures)
{
	struct gpuwm_blocks_figures figures = {0};
	struct blocks *blocks;
	struct error error;
	int r = blocks_of(region, NULL, 0, &blocks, &error);

	if (r < 0)
		return client_fail(&error);
	figures.blocks = blocks->shared.count;
	for (uint32_t i = 0; i < figures.blocks; i++) {
		const uint64_t word = atomic_load(&blocks->shared.words[i]);

		figures.held += block_word_holders(word) != 0;
		figures.owned += block_word_holders(word) == 0 && block_word_state(word) == BLOCK_OWNED;
		figures.free += block_word_is_unused(word) && block_word_state(word) == BLOCK_FREE;
	}
	figures.ready = figures.blocks - figures.held - figures.owned - figures.free;
	*ret_figures = figures;
	return 0;
}
