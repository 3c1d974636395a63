#include "cut.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define WORD 8 /* of the digest */

struct share_word {
	uint32_t share;
	uint64_t number; /* of the word in the share */
	uint8_t bytes[WORD];
	unsigned count; /* how many of its bytes are there */
};

int share_sums_make(const struct cut *cut, struct share_sums *ret, struct error *error)
{
	*ret = (struct share_sums){.cut = cut, .sums = calloc(cut->share_count + 1, sizeof(*ret->sums))};
	if (!ret->sums)
		return error_set(error, -ENOMEM, NULL, "no room for the digests of %zu tensors",
				 cut->share_count);
	pthread_mutex_init(&ret->lock, NULL);
	return 0;
}

void share_sums_clear(struct share_sums *sums)
{
	if (sums->sums)
		pthread_mutex_destroy(&sums->lock);
	free(sums->sums);
	free(sums->words);
	*sums = (struct share_sums){0};
}

static void add_words(struct share_sums *sums, uint32_t share, uint64_t offset, const void *data, size_t bytes)
{
	digest_update_shared(&sums->sums[share], offset, data, bytes);
}

/* Returns the word, a new one if no byte of it came yet, or NULL if there is no memory. The caller
 * holds the lock. */
static struct share_word *find_word(struct share_sums *sums, uint32_t share, uint64_t number)
{
	for (size_t i = 0; i < sums->word_count; i++)
		if (sums->words[i].share == share && sums->words[i].number == number)
			return &sums->words[i];
	if (sums->word_count == sums->word_room) {
		size_t room = sums->word_room * 2 + 16;
		struct share_word *words = reallocarray(sums->words, room, sizeof(*words));

		if (!words)
			return NULL;
		sums->words = words;
		sums->word_room = room;
	}
	sums->words[sums->word_count] = (struct share_word){.share = share, .number = number};
	return &sums->words[sums->word_count++];
}

/* Adds bytes of one word. */
static int add_fragment(struct share_sums *sums, uint32_t share, uint64_t offset, const void *data,
			size_t bytes, struct error *error)
{
	uint64_t begin = offset / WORD * WORD, left = sums->cut->shares[share].bytes - begin;
	unsigned whole = left < WORD ? (unsigned)left : WORD; /* the last word may be shorter */
	struct share_word *word, ready;

	pthread_mutex_lock(&sums->lock);
	word = find_word(sums, share, offset / WORD);
	if (!word) {
		pthread_mutex_unlock(&sums->lock);
		return error_set(error, -ENOMEM, NULL, "no room for the digests of tensors that are cut");
	}
	memcpy(word->bytes + offset % WORD, data, bytes);
	word->count += (unsigned)bytes;
	ready = *word;
	if (ready.count == whole)
		*word = sums->words[--sums->word_count];
	pthread_mutex_unlock(&sums->lock);
	if (ready.count == whole)
		add_words(sums, share, begin, ready.bytes, whole);
	return 0;
}

int share_sums_add(struct share_sums *sums, uint32_t share, uint64_t offset, const void *data, size_t bytes,
		   struct error *error)
{
	const char *from = data;
	size_t head = (WORD - offset % WORD) % WORD, tail;
	int r = 0;

	head = head < bytes ? head : bytes;
	if (head > 0)
		r = add_fragment(sums, share, offset, from, head, error);
	offset += head;
	bytes -= head;
	/* The last bytes of the share are a word, however few they are. */
	tail = offset + bytes == sums->cut->shares[share].bytes ? 0 : bytes % WORD;
	if (bytes > tail)
		add_words(sums, share, offset, from + head, bytes - tail);
	if (r == 0 && tail > 0)
		r = add_fragment(sums, share, offset + bytes - tail, from + head + bytes - tail, tail, error);
	return r;
}

struct digest share_sums_final(const struct share_sums *sums, uint32_t share)
{
	return digest_final(&sums->sums[share], sums->cut->shares[share].bytes);
}
