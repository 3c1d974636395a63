/* The flags of a benchmark's command line. */
#ifndef GPUWM_BENCH_FLAGS_H
#define GPUWM_BENCH_FLAGS_H

#include <stdbool.h>
#include <stdint.h>

/* One flag, and the variable that takes its value. Exactly one of the pointers is set. */
struct flag {
	const char *name; /* without "--"; NULL ends a list */
	const char **text;
	uint64_t *number; /* "512M" too */
	int *count;
	bool *set; /* the flag takes no value */
};

/* Reads the flags that stand before the operands, and sets `optind` to the first operand. A variable whose flag is missing
 * keeps its value. A flag that is not in the list ends the program with status 2. */
void flags_read(int argc, char **argv, const struct flag *flags);

#endif
