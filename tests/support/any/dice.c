#include "dice.h"

/* splitmix64 */
uint64_t dice_mixed(uint64_t x)
{
	x = (x ^ (x >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ (x >> 27)) * UINT64_C(0x94D049BB133111EB);
	return x ^ (x >> 31);
}

uint64_t dice_throw(struct dice *dice, uint64_t sides)
{
	dice->state += UINT64_C(0x9E3779B97F4A7C15);
	return dice_mixed(dice->state) % sides;
}

bool dice_percent(struct dice *dice, unsigned percent)
{
	return dice_throw(dice, 100) < percent;
}
