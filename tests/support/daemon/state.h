/* What the tests of the state share: one that is new for each test, and its slots. */
#ifndef GPUWM_TESTS_DAEMON_STATE_H
#define GPUWM_TESTS_DAEMON_STATE_H

#include "daemon/restart/state.h"
#include "base/limits.h"
#include "tests/support/any/between.h"
#include "tests/support/any/fd_count.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* A slot as state.h tells it. */
#define SLOT_BYTES (56 + MIB(64))
struct slot_header {
	char magic[8];
	uint32_t format, slots;
	uint64_t generation, bytes;
	uint8_t digest[16];
	uint64_t reserved;
};

extern struct state *state;
extern struct error state_error;

/* What was read last. */
struct state_got {
	void *data;
	size_t bytes;
	uint32_t format;
};
extern struct state_got got;

/* Begins a test with a new `state`; ends it, and no descriptor is left. */
void state_begin(void);
void state_end(void);

/* A test of `state`. */
#define StateTest(name, ...) TestBetween(state, name, state_begin(), state_end(), ##__VA_ARGS__)

/* Reads into `got`. Returns what state_read returns. */
int read_from(const struct state *from);
bool says(const struct state *from, const char *text);

void write_to(struct state *to, const char *text);
void write_text(const char *text);

/* Another descriptor of `state`. */
int state_copy(void);
/* Returns `state` as the next start sees it; NULL with state_error set. */
struct state *reopen(void);
bool next_start_says(const char *text);

/* Write to a slot of `state`, and read one from its beginning. */
void poke(unsigned slot, size_t at, const void *from, size_t count);
void peek(unsigned slot, void *to, size_t count);
/* Writes a slot as some other program would. */
void poke_slot(unsigned slot, const struct slot_header *like, const char *text);

#endif
