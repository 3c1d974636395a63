#include "../../proto/names.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#define ID "0123456789abcdef00112233445566ff"
#define UUID "fa4e0000-0000-4000-8000-00000000000a"

/* Stands before the one of libc: the next calls fail with these. */
static int getrandom_fails[2];

__attribute__((visibility("default"))) ssize_t getrandom(void *buffer, size_t bytes, unsigned flags)
{
	int fails = getrandom_fails[0];

	(void)flags;
	getrandom_fails[0] = getrandom_fails[1];
	getrandom_fails[1] = 0;
	if (fails) {
		errno = fails;
		return -1;
	}
	return getentropy(buffer, bytes) == 0 ? (ssize_t)bytes : -1;
}

/* "GPU-" and as many letters, say; valid until the next call. */
static const char *with(const char *beginning, char c, size_t count)
{
	static char text[1000];
	size_t bytes = strlen(beginning);

	memcpy(text, beginning, bytes);
	memset(text + bytes, c, count);
	text[bytes + count] = 0;
	return text;
}

static const char *repeat(char c, size_t count)
{
	return with("", c, count);
}

static bool wrong(const char *why, const char *part)
{
	return why && strstr(why, part);
}

Test(names, allows_the_grammar)
{
	cr_expect_null(name_wrong("a"));
	cr_expect_null(name_wrong("meta-llama/Llama-3.1_8B"));
	cr_expect_null(name_wrong("-x/"));
	cr_expect_null(name_wrong("_"));
	cr_expect_null(name_wrong("09AZaz"));
	cr_expect_null(name_wrong(repeat('a', 128)));
}

Test(names, refuses_what_the_grammar_lacks)
{
	cr_expect(wrong(name_wrong(""), "empty"));
	cr_expect(wrong(name_wrong(repeat('x', 129)), "128"));
	cr_expect(wrong(name_wrong(".hidden"), "leading '.'"));
	cr_expect(wrong(name_wrong("/root"), "leading '/'"));
	cr_expect(wrong(name_wrong("a/../b"), "\"..\""));
	for (const char *c = " @:\n\x7f\xc3\\*`[{^~+,;"; *c; c++)
		cr_expect(wrong(name_wrong((char[]){'a', *c, 0}), "character"), "%c", *c);
}

Test(names, refuses_what_looks_like_a_version_id)
{
	cr_expect(wrong(name_wrong(ID), "hexadecimal"));
	cr_expect(wrong(name_wrong("0123456789ABCDEF00112233445566FF"), "hexadecimal"));
	cr_expect_null(name_wrong(repeat('a', 31)));
	cr_expect_null(name_wrong(repeat('a', 33)));
	cr_expect_null(name_wrong(repeat('g', 32)));
}

Test(names, devices)
{
	cr_expect_null(device_wrong("host"));
	cr_expect_null(device_wrong("GPU-" UUID));
	cr_expect_null(device_wrong("MIG-" UUID));
	cr_expect_null(device_wrong("MIG-GPU-" UUID "/1/0"));
	cr_expect(wrong(device_wrong(""), "neither"));
	cr_expect(wrong(device_wrong("cuda:0"), "neither"));
	cr_expect(wrong(device_wrong("gpu-" UUID), "neither"));
	cr_expect(wrong(device_wrong("GPU-"), "59"));
	cr_expect(wrong(device_wrong("GPU-12 4"), "character"));
	cr_expect(wrong(device_wrong("GPU-\xff"), "character"));
	cr_expect_null(device_wrong(with("GPU-", 'a', 59)));
	cr_expect(wrong(device_wrong(with("GPU-", 'a', 60)), "59"));
}

Test(names, devices_have_kinds)
{
	cr_expect_eq(memory_kind_of("host"), &kind_host);
	cr_expect_eq(memory_kind_of("GPU-" UUID), &kind_cuda);
	cr_expect_eq(memory_kind_of("MIG-" UUID), &kind_cuda);
	cr_expect_null(memory_kind_of("hosts"));
	cr_expect_null(memory_kind_of("cuda"));
	cr_expect_eq(memory_kind_find("host"), &kind_host);
	cr_expect_eq(memory_kind_find("cuda"), &kind_cuda);
	cr_expect_null(memory_kind_find("hip"));
}

Test(names, a_uuid_names_one_device_with_either_prefix)
{
	cr_expect_str_eq(device_uuid("MIG-" UUID), UUID);
	cr_expect_null(device_uuid("host"));
	cr_expect_null(device_uuid("cuda:0"));
	cr_expect(device_same("host", "host"));
	cr_expect(device_same("GPU-ab", "MIG-AB"));
	cr_expect_not(device_same("GPU-ab", "GPU-abc"));
	cr_expect_not(device_same("GPU-host", "host"));
}

Test(names, refs)
{
	const char *why = NULL;
	struct ref ref;

	cr_assert_eq(ref_parse("llama", &ref, &why), 0);
	cr_expect(!ref.has_id && !strcmp(ref.model, "llama") && !strcmp(ref.name, ALIAS_CURRENT));
	cr_assert_eq(ref_parse("meta/llama@v1.2", &ref, &why), 0);
	cr_expect(!ref.has_id && !strcmp(ref.model, "meta/llama") && !strcmp(ref.name, "v1.2"));
	cr_assert_eq(ref_parse(ID, &ref, &why), 0);
	cr_expect(ref.has_id && ref.id.bytes[0] == 1 && ref.id.bytes[15] == 255);
	cr_expect(!*ref.model && !*ref.name);
	cr_expect_null(why);
}

/* Refused, and nothing is set. */
static void refuses_ref(const char *text, const char *part)
{
	struct ref ref = {.has_id = true, .model = "kept"};
	const char *why = NULL;

	cr_expect_eq(ref_parse(text, &ref, &why), -EINVAL, "%s", text);
	cr_expect(wrong(why, part), "%s: %s", text, why);
	cr_expect(ref.has_id && !strcmp(ref.model, "kept"));
}

Test(names, refs_that_are_none)
{
	refuses_ref("", "empty");
	refuses_ref("@v1", "no model before its '@'");
	refuses_ref("llama@", "nothing after its '@'");
	refuses_ref("llama@v1@v2", "character");
	refuses_ref("llama@" ID, "hexadecimal");
	refuses_ref("0123456789ABCDEF00112233445566FF", "hexadecimal");
	refuses_ref(repeat('m', 129), "128");
	refuses_ref(with("m@", 't', 129), "128");
	refuses_ref("a..b@v1", "\"..\"");
}

Test(names, the_longest_ref)
{
	char text[2 * 128 + 2] = "";
	const char *why = NULL;
	struct ref ref;

	memset(text, 'm', 128);
	text[128] = '@';
	memset(text + 129, 't', 128);
	cr_assert_eq(ref_parse(text, &ref, &why), 0);
	cr_expect_eq(strlen(ref.model), 128);
	cr_expect_eq(strlen(ref.name), 128);
}

Test(names, hexadecimal_and_back)
{
	uint8_t bytes[16], back[16];
	char text[VERSION_ID_TEXT];

	for (int i = 0; i < 16; i++)
		bytes[i] = (uint8_t)(i * 17);
	hex128_format(bytes, text);
	cr_assert_str_eq(text, "00112233445566778899aabbccddeeff");
	cr_assert_eq(hex128_parse(text, back), 0);
	cr_expect_arr_eq(bytes, back, 16);
}

Test(names, hexadecimal_that_is_none)
{
	uint8_t back[16] = {7};

	cr_expect_eq(hex128_parse("", back), -EINVAL);
	cr_expect_eq(hex128_parse(repeat('a', 31), back), -EINVAL);
	cr_expect_eq(hex128_parse(repeat('a', 33), back), -EINVAL);
	cr_expect_eq(hex128_parse(repeat('A', 32), back), -EINVAL);
	cr_expect_eq(hex128_parse("00112233445566778899aabbccddeeffg", back), -EINVAL);
	cr_expect_eq(hex128_parse(repeat('g', 32), back), -EINVAL);
	cr_expect_eq(back[0], 7);
}

Test(names, version_ids_are_new)
{
	struct version_id a, b;

	cr_assert_eq(version_id_new(&a), 0);
	cr_assert_eq(version_id_new(&b), 0);
	cr_expect(!version_id_equal(&a, &b));
	cr_expect(version_id_equal(&a, &a));
}

Test(names, version_ids_need_the_random_source)
{
	struct version_id id = {.bytes = {7}};

	getrandom_fails[0] = ENOSYS;
	cr_expect_eq(version_id_new(&id), -ENOSYS);
	cr_expect_eq(id.bytes[0], 7);
	getrandom_fails[0] = getrandom_fails[1] = EINTR;
	cr_expect_eq(version_id_new(&id), 0);
}
