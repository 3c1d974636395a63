/* Publishers that have begun a part and give no sign of life. gpuwmd fails their version, as an abort would, so that nobody keeps
 * memory from others only by asking for it. */
#ifndef GPUWM_DAEMON_SILENCE_H
#define GPUWM_DAEMON_SILENCE_H

struct work;
struct silence;

/* Returns NULL if there is no memory. */
struct silence *silence_new(struct work *work);
/* Returns NULL; NULL is fine. */
struct silence *silence_free(struct silence *silence);

/* Looks at all parts, and sets a timer for the first one that may be silent for too long. Call it when a part was begun or
 * committed, or its publisher has closed the socket to the checker. */
void silence_watch(struct silence *silence);

#endif
