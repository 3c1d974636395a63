/* Patterns of model names: which values `match` of a section may have. */
#include "config_internal.h"
#include "../../proto/names.h"

#include <stdbool.h>
#include <string.h>

static bool is_of_names(char c)
{
	const char text[] = {'a', c, '\0'}; /* some characters may not be a name's first */

	return c != '\0' && !name_wrong(text);
}

/* One character of a set, or a range; NULL: what is wrong. */
static const char *item_end(const char *item, const char **ret_wrong)
{
	const bool is_range = *item && item[1] == '-' && item[2] != ']' && item[2] != '\0';

	if (*item == '\0')
		*ret_wrong = "has a '[' without its ']'";
	else if (!is_of_names(*item) || (is_range && !is_of_names(item[2])))
		*ret_wrong = "has a character between '[' and ']' that no name has";
	else if (is_range && item[2] < item[0])
		*ret_wrong = "has a range whose end comes before its beginning";
	else
		return item + (is_range ? 3 : 1);
	return NULL;
}

/* Behind the set that begins here; NULL: what is wrong with it. */
static const char *set_end(const char *set, const char **ret_wrong)
{
	const char *item = set + 1 + (set[1] == '!');

	if (*item == ']') {
		*ret_wrong = "has an empty set";
		return NULL;
	}
	while (item && *item != ']')
		item = item_end(item, ret_wrong);
	return item ? item + 1 : NULL;
}

/* Returns the end of what begins here: a set, a wildcard, or a character of names. NULL: what is wrong with it. */
static const char *element_end(const char *element, const char **ret_wrong)
{
	if (*element == '[')
		return set_end(element, ret_wrong);
	if (*element == '*' || *element == '?' || is_of_names(*element))
		return element + 1;
	*ret_wrong = *element == ']' ? "has a ']' without its '['" : "has a character that no name has";
	return NULL;
}

/* The pattern of a user's versions without a name: the number of the user follows the '~' (nameless_model). */
static const char *user_number_wrong(const char *number)
{
	const bool is_padded = number[0] == '0' && number[1] >= '0' && number[1] <= '9';

	if (!*number || is_padded || number[strspn(number, "0123456789*?")])
		return "has a '~', and a user's number does not follow";
	return NULL;
}

const char *pattern_wrong(const char *pattern)
{
	const char *wrong = NULL, *at = pattern;
	unsigned shortest = 0; /* bytes of the shortest name that matches */

	if (pattern[0] == '~')
		return user_number_wrong(pattern + 1);
	if (!strpbrk(pattern, "*?[]"))
		return name_wrong(pattern);
	if (pattern[0] == '.' || pattern[0] == '/' || strstr(pattern, ".."))
		return "begins with '.' or '/' or has \"..\" in it, as no name does";
	while (*at) {
		shortest += *at != '*';
		at = element_end(at, &wrong);
		if (!at)
			return wrong;
	}
	return shortest > NAME_BYTES_MAX ? "needs a name of more than 128 bytes" : NULL;
}
