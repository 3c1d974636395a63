#include "../../proto/index/key_set.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define ROUNDS 50
#define ATTEMPTS 9
#define KEY_BYTES 8
#define TIMES_MAX 8

static char keys[MESSAGE_MAP_MAX][KEY_BYTES + 1];

/* Of one length, and alike up to their ends: comparing two takes as long as it can. */
static void make_keys(void)
{
	for (unsigned i = 0; i < MESSAGE_MAP_MAX; i++)
		snprintf(keys[i], sizeof(keys[i]), "same-%03u", i);
}

TestSuite(key_set, .init = make_keys);

/* The vectors of the reference implementation: key 00 to 0f, text 00 01 02 …. */
Test(key_set, the_hash_is_siphash_1_3)
{
	static const uint64_t hashes[] = {0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d,
					  0x8bf80ab8e7ddf7fb, 0xcf75576088d38328, 0xdef9d52f49533b67,
					  0xc50d2b50c59f22a7, 0xd3927d989bb11140, 0x369095118d299a8e};
	const uint64_t secret[2] = {0x0706050403020100, 0x0f0e0d0c0b0a0908};
	const uint8_t text[] = {0, 1, 2, 3, 4, 5, 6, 7};

	for (size_t bytes = 0; bytes < sizeof(hashes) / sizeof(*hashes); bytes++)
		cr_expect_eq(key_set_hash(secret, text, bytes), hashes[bytes], "%zu bytes", bytes);
}

Test(key_set, the_hash_depends_on_the_secret)
{
	const uint64_t one[2] = {1, 2}, first[2] = {3, 2}, second[2] = {1, 3};

	cr_expect_neq(key_set_hash(one, "key", 3), key_set_hash(first, "key", 3));
	cr_expect_neq(key_set_hash(one, "key", 3), key_set_hash(second, "key", 3));
}

Test(key_set, tells_keys_apart_at_every_size)
{
	for (unsigned count = 1; count <= MESSAGE_MAP_MAX; count++) {
		struct key_set set;

		key_set_init(&set, count);
		for (unsigned i = 0; i < count - 1; i++)
			cr_assert(key_set_add(&set, keys[i], KEY_BYTES), "%u of %u", i, count);
		cr_assert(key_set_add(&set, keys[0], KEY_BYTES - 1), "a shorter key is another one");
		for (unsigned i = 0; i < count - 1; i++)
			cr_assert_not(key_set_add(&set, keys[i], KEY_BYTES), "%u of %u", i, count);
	}
}

static double now_s(void)
{
	struct timespec time;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
	return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static double fill_s(unsigned count)
{
	double start = now_s();

	for (unsigned round = 0; round < ROUNDS * MESSAGE_MAP_MAX / count; round++) {
		struct key_set set;

		key_set_init(&set, count);
		for (unsigned i = 0; i < count; i++)
			cr_assert(key_set_add(&set, keys[i], KEY_BYTES));
	}
	return now_s() - start;
}

/* Comparing all pairs takes 30 times as long. The best of some attempts on both sides: others use the machine too. */
Test(key_set, a_key_of_a_large_map_costs_what_one_of_a_small_map_costs)
{
	double small = 1e9, large = 1e9;

	for (int i = 0; i < ATTEMPTS; i++) {
		double one = fill_s(8), other = fill_s(MESSAGE_MAP_MAX);

		small = one < small ? one : small;
		large = other < large ? other : large;
	}
	cr_expect_lt(large, TIMES_MAX * small, "%.1f us and %.1f us", large * 1e6, small * 1e6);
}
