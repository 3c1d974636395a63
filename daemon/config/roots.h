/* Whether the configured roots can be used. A loader judges them (../../service/root.h), since its user, its groups and its mounts
 * decide what a load finds; gpuwmd keeps what the last loader said, for the log, for status and for doctor. */
#ifndef GPUWM_DAEMON_ROOTS_H
#define GPUWM_DAEMON_ROOTS_H

#include "../../proto/wire/messages_look.h"

struct config;
struct roots;

/* NULL: out of memory. */
struct roots *roots_new(void);
/* Returns NULL; NULL is fine. */
struct roots *roots_free(struct roots *roots);

/* How many of the configured roots a loader is to judge: all, or none if their paths have no room in one message. */
uint32_t roots_to_judge(const struct config *config);

/* A loader has judged the roots: keeps copies, and logs each root that can't be used, and that can be used again, when that
 * changes. pid: the loader's. Returns 0 or -ENOMEM, which leaves what is known. */
int roots_take(struct roots *roots, uint64_t pid, const struct root_told *told, uint32_t count);
/* The configuration has changed, so that nothing is known. */
void roots_forget(struct roots *roots);

/* Sets *ret to what is known. The pointers are good until the next call above; `items` is the caller's, for as many as
 * have room in one message. Returns false if nothing is known. */
bool roots_tell(const struct roots *roots, struct root_told items[ROOTS_MAX], struct roots_told *ret);

/* Judges all roots in the calling thread, as this process may use them, and logs those that it can't use. */
void roots_check_now(const struct config *config);

#endif
