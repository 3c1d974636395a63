/* What every fuzzer is told, draws and demands. The same seed gives the same run. */
#ifndef GPUWM_TESTS_FUZZ_H
#define GPUWM_TESTS_FUZZ_H

#include <errno.h>
#include <inttypes.h>
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

/* Reads the arguments [iterations [seed]], prints both and begins to draw. Returns the iterations; `usual` are those without arguments. */
static inline uint64_t fuzz_begin(int argc, char **argv, uint64_t usual)
{
	uint64_t iterations = argc > 1 ? strtoull(argv[1], NULL, 10) : usual;
	uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;

	printf("%s: %" PRIu64 " iterations, seed %" PRIu64 "\n", program_invocation_short_name, iterations,
	       seed);
	draw_begin(seed);
	return iterations;
}

/* Prints how many were accepted. Returns the exit status. */
static inline int fuzz_end(uint64_t accepted, uint64_t iterations)
{
	printf("%s: %" PRIu64 " of %" PRIu64 " accepted\n", program_invocation_short_name, accepted,
	       iterations);
	return 0;
}

static inline void must(bool holds, const char *what)
{
	if (holds)
		return;
	fprintf(stderr, "%s: %s\n", program_invocation_short_name, what);
	abort();
}

#endif
