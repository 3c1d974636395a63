/* Loaders that keep contexts ([loader] keep_context): gpuwmd's half. The test is the loaders, and their GPUs' budget. */
#ifndef GPUWM_TESTS_DAEMON_WARM_H
#define GPUWM_TESTS_DAEMON_WARM_H

#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"

#define GPU "GPU-1"
#define OTHER_GPU "GPU-2"
#define CONTEXT MIB(100)

extern struct device *gpu, *other_gpu;
extern int loader, next; /* the first, and the one that stands by when that has a job */

/* Two GPUs, and a loader that stands by. */
void begin(uint64_t keep_s);

/* Ends all. */
void finish(void);

/* A test between the two. */
#define WarmTest(suite, name, keep_s) TestBetween(suite, name, begin(keep_s), finish())

/* Begins a load to one GPU, or to two. */
struct job *load_to_both(struct device *first, struct device *second);
struct job *load_to(struct device *device);

/* Waits for a job that is sent to this loader. */
void expect_job(int sock);

/* The loader says that its job is done, or failed with this code, and offers to stay. Returns whether it is to. */
bool says_done_and_stays(int sock, int code);

/* The first loader has a context on the GPU and no job; `next` stands by. */
void warm_up(void);

/* The loader that stays. */
struct loader *warm_one(void);

/* The loader's connection has ended, and its contexts are given back. */
void expect_dismissed(void);

/* It has not ended, and keeps its context. */
void expect_kept(void);

#endif
