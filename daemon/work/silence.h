/* Publishers that have begun and are silent: what they were granted returns, so that nobody keeps memory from the others
 * by asking for it. The version fails, as by an abort. */
#ifndef GPUWM_DAEMON_SILENCE_H
#define GPUWM_DAEMON_SILENCE_H

struct work;
struct silence;

/* NULL: out of memory. */
struct silence *silence_new(struct work *work);
/* NULL is fine; always NULL. */
struct silence *silence_free(struct silence *silence);

/* A part was begun or committed: looks when the first of all of them may be silent for too long. */
void silence_watch(struct silence *silence);

#endif
