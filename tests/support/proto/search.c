#include "search.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void *allocated(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static const void *state_at(const struct search *search, size_t number)
{
	return search->states + number * search->state_bytes;
}

static uint64_t hash_of(const struct search *search, const void *state)
{
	const unsigned char *bytes = state;
	uint64_t hash = UINT64_C(0xcbf29ce484222325);

	for (size_t i = 0; i < search->state_bytes; i++)
		hash = (hash ^ bytes[i]) * UINT64_C(0x100000001b3);
	return hash ^ hash >> 29;
}

/* Where the state is in the table, or where it would be. Entries are numbers of states, and 1 more. */
static uint32_t *place_of(const struct search *search, const void *state)
{
	size_t i = hash_of(search, state) & (search->table_size - 1);

	while (search->table[i] &&
	       memcmp(state_at(search, search->table[i] - 1), state, search->state_bytes) != 0)
		i = (i + 1) & (search->table_size - 1);
	return &search->table[i];
}

static void grow(struct search *search)
{
	search->room = search->room ? search->room * 2 : 1 << 12;
	search->table_size = search->room * 2;
	search->states = allocated(realloc(search->states, search->room * search->state_bytes));
	search->parents = allocated(realloc(search->parents, search->room * sizeof(*search->parents)));
	search->steps = allocated(realloc(search->steps, search->room * sizeof(*search->steps)));
	free(search->table);
	search->table = allocated(calloc(search->table_size, sizeof(*search->table)));
	for (size_t i = 0; i < search->count; i++)
		*place_of(search, state_at(search, i)) = (uint32_t)i + 1;
}

void search_reach(struct search *search, const void *state, const char *step)
{
	uint32_t *place;

	if (search->count == search->room)
		grow(search);
	place = place_of(search, state);
	if (*place)
		return;
	memcpy(search->states + search->count * search->state_bytes, state, search->state_bytes);
	search->parents[search->count] = (uint32_t)search->at;
	search->steps[search->count] = step;
	*place = (uint32_t)++search->count;
}

static void print_way(const struct search *search, size_t number)
{
	if (number > 0)
		print_way(search, search->parents[number]);
	fprintf(stderr, "%-40s ", search->steps[number]);
	search->print(state_at(search, number));
}

const char *search_run(struct search *search, const void *first)
{
	char *state = allocated(malloc(search->state_bytes));
	const char *wrong = NULL;

	search_reach(search, first, "");
	for (search->at = 0; !wrong && search->at < search->count; search->at++) {
		/* A copy: the array moves when it grows. */
		memcpy(state, state_at(search, search->at), search->state_bytes);
		wrong = search->wrong(state);
		if (wrong)
			print_way(search, search->at);
		else
			search->follow(search, state);
	}
	free(state);
	return wrong;
}

void search_free(struct search *search)
{
	free(search->states);
	free(search->parents);
	free(search->steps);
	free(search->table);
}
