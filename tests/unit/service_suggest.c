/* "Did you mean": which name is taken for which. */
#include "service/suggest.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <string.h>

/* Offers these names (end with NULL): the one that is taken for the word, or "". */
static const char *meant(const char *word, ...)
{
	static struct suggestion suggestion;
	const char *name;
	va_list list;

	suggest_begin(&suggestion, word);
	va_start(list, word);
	while ((name = va_arg(list, const char *)))
		suggest_offer(&suggestion, name);
	va_end(list);
	return suggestion.name;
}

Test(service_suggest, one_edit_is_found_in_short_words)
{
	cr_expect_str_eq(meant("sawp", "show", "swap", NULL), "swap", "changed places");
	cr_expect_str_eq(meant("swp", "ps", "swap", NULL), "swap", "one is missing");
	cr_expect_str_eq(meant("lss", "ls", NULL), "ls", "one is too many");
	cr_expect_str_eq(meant("pim", "rm", "pin", NULL), "pin", "another one");
	cr_expect_str_eq(meant("sl", "ps", "ls", NULL), "ls");
}

Test(service_suggest, longer_words_may_differ_more)
{
	cr_expect_str_eq(meant("segmet-byte", "segment-bytes", NULL), "segment-bytes");
	cr_expect_str_eq(meant("relaod", "reload", NULL), "reload");
	cr_expect_str_eq(meant("pxy", "pin", NULL), "", "two edits of three characters");
	cr_expect_str_eq(meant("wxyzt", "reload", NULL), "");
	cr_expect_str_eq(meant("llama-3.1-instruct", "mistral-7b", NULL), "");
}

Test(service_suggest, the_closest_and_first_is_taken)
{
	cr_expect_str_eq(meant("lama", "llava", "llama", "llamas", NULL), "llama");
	cr_expect_str_eq(meant("prob", "prod", "probe", NULL), "prod", "both differ by one");
}

Test(service_suggest, a_beginning_is_enough)
{
	cr_expect_str_eq(meant("segm", "segment-bytes", NULL), "segment-bytes");
	cr_expect_str_eq(meant("s", "swap", NULL), "", "one letter is not");
}

Test(service_suggest, numbers_are_meant)
{
	cr_expect_str_eq(meant("v3", "v1", "v2", NULL), "");
	cr_expect_str_eq(meant("llama-v10", "llama-v1", NULL), "");
	cr_expect_str_eq(meant("lama-v2", "llama-v1", "llama-v2", NULL), "llama-v2");
}

Test(service_suggest, words_without_an_end_are_like_nothing)
{
	char word[4096];

	memset(word, 'a', sizeof(word) - 1);
	word[sizeof(word) - 1] = '\0';
	cr_expect_str_eq(meant(word, "aaaa", word, NULL), "");
	cr_expect_str_eq(meant("", "a", NULL), "");
	cr_expect_str_eq(meant("aaaa", word, NULL), "");
}
