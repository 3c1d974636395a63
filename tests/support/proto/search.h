/* A breadth-first search through all states of a model: which of them is wrong, and by which steps is it reached? */
#ifndef GPUWM_TESTS_SUPPORT_PROTO_SEARCH_H
#define GPUWM_TESTS_SUPPORT_PROTO_SEARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct search {
	/* The caller's. States are compared byte by byte, so that unused bytes must be 0. */
	size_t state_bytes;
	/* Calls search_reach for each state that follows. */
	void (*follow)(struct search *search, const void *state);
	/* NULL: nothing is wrong with the state. */
	const char *(*wrong)(const void *state);
	void (*print)(const void *state);
	/* The search's. */
	char *states;
	uint32_t *parents, *table;
	const char **steps;
	size_t count, room, table_size, at;
};

/* step: how one gets there from the state that search->follow was called for; a literal. */
void search_reach(struct search *search, const void *state, const char *step);
/* Goes through all states. Returns NULL if all are right. Otherwise returns what is wrong with the first wrong one, and prints the
 * steps to it. */
const char *search_run(struct search *search, const void *first);
void search_free(struct search *search);

#endif
