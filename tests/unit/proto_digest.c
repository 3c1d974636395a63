#include "../../proto/index/digest.h"
#include "../../proto/names.h"

#include <criterion/criterion.h>
#include <string.h>

#define KEY1 0x9E3779B97F4A7C15u
#define KEY2 0xC2B2AE3D27D4EB4Fu

static uint8_t data[4096 + 8];

static void fill(void)
{
	uint64_t x = 88172645463325252u;

	for (size_t i = 0; i < sizeof(data); i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		data[i] = (uint8_t)x;
	}
}

/* The formula of the header, word for word. */
static struct digest_sum formula(uint64_t first, const uint8_t *from, size_t bytes)
{
	struct digest_sum sum = {0, 0};

	for (size_t i = 0; i * 8 < bytes; i++) {
		uint64_t w = 0, x, y;

		for (size_t j = 0; j < 8 && i * 8 + j < bytes; j++)
			w |= (uint64_t)from[i * 8 + j] << (8 * j);
		x = w ^ (first + i + 1) * KEY1;
		y = w ^ (first + i + 1) * KEY2;
		sum.a += w + (x % (1ull << 32)) * (x >> 32);
		sum.b += (w << 32 | w >> 32) + (y % (1ull << 32)) * (y >> 32);
	}
	return sum;
}

static void same(const struct digest_sum *a, const struct digest_sum *b, const char *what, size_t bytes)
{
	cr_expect(a->a == b->a && a->b == b->b, "%s, %zu bytes", what, bytes);
}

static const char *text_of(struct digest digest)
{
	static char text[VERSION_ID_TEXT];

	hex128_format(digest.bytes, text);
	return text;
}

/* These were computed by another program (Python, from the header). */
Test(digest, known_answers)
{
	uint8_t count[1027];

	for (size_t i = 0; i < sizeof(count); i++)
		count[i] = (uint8_t)i;
	memcpy(count + 1024, "xyz", 3);
	cr_expect_str_eq(text_of(digest_of("", 0)), "00000000000000000000000000000000");
	cr_expect_str_eq(text_of(digest_of("a", 1)), "2e59b79a8667cc248d8bab7d5dad7de8");
	cr_expect_str_eq(text_of(digest_of("abcdefgh", 8)), "be7588f5114fc5f99b6f4abf88ad7ee0");
	cr_expect_str_eq(text_of(digest_of("gpuwm: loaded once, mapped by many", 34)),
			 "359b0be81e2a99ca08a4239c139d6ba2");
	cr_expect_str_eq(text_of(digest_of(count, sizeof(count))), "172b331c9facc8759a1587ca9127b4ba");
}

Test(digest, every_kernel_is_the_formula)
{
	struct digest_kernel kernels[DIGEST_KERNELS_MAX];
	size_t count = digest_kernels(kernels);

	fill();
	cr_assert_geq(count, 1);
	for (size_t k = 0; k < count; k++) {
		cr_log_info("%s", kernels[k].name);
		for (size_t words = 0; words <= 100; words++) {
			/* At an odd address, and far into what is digested. */
			struct digest_sum near = kernels[k].sum(0, data + 1, words),
					  near_is = formula(0, data + 1, words * 8);
			struct digest_sum far = kernels[k].sum(1ull << 61, data, words),
					  far_is = formula(1ull << 61, data, words * 8);

			same(&near, &near_is, kernels[k].name, words * 8);
			same(&far, &far_is, kernels[k].name, words * 8);
		}
	}
}

Test(digest, all_short_lengths)
{
	fill();
	for (size_t bytes = 0; bytes <= 100; bytes++) {
		struct digest_sum sum = {0, 0}, expected = formula(0, data, bytes);

		digest_update(&sum, 0, data, bytes);
		same(&sum, &expected, "update", bytes);
	}
}

Test(digest, chunks_in_any_order)
{
	struct digest whole;

	fill();
	whole = digest_of(data, 1003);
	for (size_t at = 0; at <= 1000; at += 8) {
		struct digest_sum first = {0, 0}, second = {0, 0};
		struct digest merged;

		digest_update(&second, at, data + at, 1003 - at);
		digest_update(&first, 0, data, at);
		digest_merge(&second, &first);
		merged = digest_final(&second, 1003);
		cr_expect(digest_equal(&merged, &whole), "split at %zu", at);
	}
}

Test(digest, tells_lengths_places_and_bits_apart)
{
	struct digest whole, other;

	fill();
	whole = digest_of(data, 64);
	for (size_t bit = 0; bit < 64 * 8; bit++) {
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
		other = digest_of(data, 64);
		cr_expect(!digest_equal(&whole, &other), "bit %zu", bit);
		data[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	memset(data, 0, sizeof(data));
	whole = digest_of(data, 64);
	other = digest_of(data, 63);
	cr_expect(!digest_equal(&whole, &other));
	memcpy(data, "12345678abcdefgh", 16);
	whole = digest_of(data, 16);
	memcpy(data, "abcdefgh12345678", 16);
	other = digest_of(data, 16);
	cr_expect(!digest_equal(&whole, &other));
}
