/* The standard streams. Whoever starts a service may have closed them. */
#ifndef GPUWM_SERVICE_STREAMS_H
#define GPUWM_SERVICE_STREAMS_H

/* Opens /dev/null in the place of each stream that is closed, so that the numbers 0 to 2 are never
 * another file: log lines would go there. Call it first in a program. Returns 0. Fails with -errno
 * if a stream is still missing. */
int streams_open(void);

#endif
