/* gpuwmd with a folder of descriptions: all of its processes end, all memory is gone, and the next one starts. */
#ifndef GPUWM_TESTS_DESCRIBED_H
#define GPUWM_TESTS_DESCRIBED_H

#include "tiers.h"

/* Starts gpuwmd with the folder d->dir/described, and up to 12 further flags (end with NULL), which each start after it has too. */
struct gpuwmd *described_start(const char *flag, ...);
/* Ends gpuwmd with this signal, and starts the next one, which knows nothing but the folder. described_spawn does not wait for it. */
void described_reboot(struct gpuwmd *d, int signal_number);
void described_end(struct gpuwmd *d, int signal_number);
void described_spawn(struct gpuwmd *d);
/* Ends gpuwmd with SIGTERM; it must leave with 0. */
void described_stop(struct gpuwmd *d);
/* The path of a file of the folder; valid until the next call. */
const char *described_path(const struct gpuwmd *d, const char *name);
/* The path of the version's file; the same. */
const char *described_file(struct gpuwmd *d, const char *tag);

/* Whether `list` says that this version of the model m is described. */
bool is_described(struct gpuwmd *d, const char *tag);
/* A number of `tiers` of `status`; whether its error has these words. words NULL: whether there is none. */
bool tiers_pending(struct gpuwmd *d);
uint64_t tiers_number(struct gpuwmd *d, const char *key);
bool tiers_error(struct gpuwmd *d, const char *words);

/* Loads m@v1, m@v2, …, so many versions, and waits until they are described. */
void describe_small(struct gpuwmd *d, unsigned count);
/* Attaches, waits for the promotion, and compares all bytes. */
void attach_reads(const char *ref, uint64_t seed);

#endif
