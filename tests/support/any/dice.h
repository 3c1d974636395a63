/* Dice: the same throws from the same seed. */
#ifndef GPUWM_TESTS_ANY_DICE_H
#define GPUWM_TESTS_ANY_DICE_H

#include <stdbool.h>
#include <stdint.h>

struct dice {
	uint64_t state; /* to begin with: the seed */
};

/* 0 to sides - 1. */
uint64_t dice_throw(struct dice *dice, uint64_t sides);
bool dice_percent(struct dice *dice, unsigned percent);
/* A number whose bits all depend on all bits of this one. */
uint64_t dice_mixed(uint64_t x);

#endif
