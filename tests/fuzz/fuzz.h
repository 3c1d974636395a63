/* What every fuzzer draws and demands. The same seed gives the same run. */
#ifndef GPUWM_TESTS_FUZZ_H
#define GPUWM_TESTS_FUZZ_H

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static uint64_t draw_state;

static inline void draw_begin(uint64_t seed)
{
	draw_state = seed * 0x9E3779B97F4A7C15u | 1;
}

/* 0 to below - 1. */
static inline uint64_t draw(uint64_t below)
{
	draw_state ^= draw_state << 13;
	draw_state ^= draw_state >> 7;
	draw_state ^= draw_state << 17;
	return draw_state % below;
}

static inline void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	abort();
}

#endif
