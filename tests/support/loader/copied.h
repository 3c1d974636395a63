/* A checkpoint of three tensors, which tests copy into memory of their own. */
#ifndef GPUWM_TESTS_LOADER_COPIED_H
#define GPUWM_TESTS_LOADER_COPIED_H

#include "loader/copy/copy_internal.h"
#include "loader/copy/copy.h"

#include "tests/support/loader/opened.h"

#define TENSORS 3
#define BIG 100000

/* `source` has a (8 bytes), b (BIG bytes), c (13 bytes), and two places in memory for each. */
extern struct memory_device host;
extern char *memory[2][TENSORS];

/* What the last copy_to did, besides `error`. */
extern struct copy_report report;
extern struct digest digests[TENSORS];

/* Fixtures: make the source, and remove it. */
void copied_setup(void);
void copied_teardown(void);

/* Copies the source to these targets; through a ring of so many buffers, if they are not memory of `host`. */
extern size_t buffers;
int copy_to(const struct copy_target *targets, size_t count, struct copy options);
/* Asserts that a place has all bytes, and that the digests are theirs. */
void expect_copied(int place);

/* A device that is not `host`, so that the ring is used. So many writes succeed; writes_left are still to come. */
extern int writes_left;
extern struct memory_ops other_ops;
struct memory_device other(int writes);

#endif
