#include "suggest.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define LENGTH_MAX 128 /* of a word and a name: NAME_BYTES_MAX; longer ones are like nothing */
#define DIGITS "0123456789"
#define PREFIX_MIN 2 /* one letter is the beginning of too many */

static size_t least(size_t a, size_t b)
{
	return a < b ? a : b;
}

/* Optimal string alignment: three rows of the table of distances between the beginnings of both. */
static size_t edits(const char *a, const char *b)
{
	size_t rows[3][LENGTH_MAX + 1], length = strlen(b);
	size_t *before = rows[0], *last = rows[1], *row = rows[2], *spare;

	for (size_t j = 0; j <= length; j++)
		last[j] = j;
	for (size_t i = 1; a[i - 1]; i++) {
		row[0] = i;
		for (size_t j = 1; j <= length; j++) {
			row[j] = least(least(last[j], row[j - 1]) + 1, last[j - 1] + (a[i - 1] != b[j - 1]));
			if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
				row[j] = least(row[j], before[j - 2] + 1);
		}
		spare = before;
		before = last;
		last = row;
		row = spare;
	}
	return last[length];
}

/* v1 and v2 are not misspelled: somebody numbers them. */
static bool only_numbers_differ(const char *a, const char *b)
{
	for (;; a++, b++) {
		a += strspn(a, DIGITS);
		b += strspn(b, DIGITS);
		if (*a != *b || !*a)
			return *a == *b;
	}
}

void suggest_begin(struct suggestion *suggestion, const char *word)
{
	const size_t length = strlen(word);

	suggestion->word = word;
	suggestion->distance = length <= 3 ? 1 : length <= 6 ? 2 : 3;
	suggestion->name[0] = '\0';
}

void suggest_offer(struct suggestion *suggestion, const char *name)
{
	size_t word_length = strlen(suggestion->word), length = strlen(name), distance;
	bool is_first = !suggestion->name[0];

	if (word_length > LENGTH_MAX || length > LENGTH_MAX || word_length == 0)
		return;
	distance = edits(suggestion->word, name);
	if (word_length >= PREFIX_MIN && strncmp(name, suggestion->word, word_length) == 0)
		distance = least(distance, 1);
	if (only_numbers_differ(suggestion->word, name))
		return;
	/* As many edits as characters make any word of any other. */
	if (distance >= length || distance > suggestion->distance ||
	    (distance == suggestion->distance && !is_first))
		return;
	suggestion->distance = distance;
	snprintf(suggestion->name, sizeof(suggestion->name), "%s", name);
}
