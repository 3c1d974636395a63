/* Keys, from what terminals send. */
#include "client/ctl/terminal.h"

#include <criterion/criterion.h>

/* The last key of these bytes. */
static int key_of(const char *bytes)
{
	struct keys keys = {0};
	int key = KEY_NONE;

	for (; *bytes; bytes++) {
		cr_assert_eq(key, KEY_NONE, "a key came before its end");
		key = keys_take(&keys, (unsigned char)*bytes);
	}
	cr_assert_eq(keys_open(&keys), key == KEY_NONE);
	return key == KEY_NONE ? keys_end(&keys) : key;
}

Test(ctl_top_keys, are_characters_or_sequences)
{
	cr_assert_eq(key_of("q"), 'q');
	cr_assert_eq(key_of("\t"), '\t');
	cr_assert_eq(key_of("\x7f"), KEY_BACKSPACE);
	cr_assert_eq(key_of("\b"), KEY_BACKSPACE);
	cr_assert_eq(key_of("\033[A"), KEY_UP);
	cr_assert_eq(key_of("\033OB"), KEY_DOWN);
	cr_assert_eq(key_of("\033[5~"), KEY_PAGE_UP);
	cr_assert_eq(key_of("\033[6~"), KEY_PAGE_DOWN);
	cr_assert_eq(key_of("\033[H"), KEY_HOME);
	cr_assert_eq(key_of("\033[4~"), KEY_END);
}

Test(ctl_top_keys, that_mean_nothing_are_swallowed_whole)
{
	cr_assert_eq(key_of("\033[15~"), KEY_OTHER); /* F5 */
	cr_assert_eq(key_of("\033[1;5C"), KEY_OTHER); /* Ctrl and right */
	cr_assert_eq(key_of("\033x"), KEY_OTHER); /* Alt and x */
	cr_assert_eq(key_of("\033[11111"), KEY_OTHER); /* no terminal sends that */
}

Test(ctl_top_keys, escape_is_one_if_nothing_follows)
{
	cr_assert_eq(key_of("\033"), KEY_ESCAPE);
	cr_assert_eq(key_of("\033["), KEY_OTHER);
}
