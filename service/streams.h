/* Standard streams, which whoever starts a service may have closed. */
#ifndef GPUWM_SERVICE_STREAMS_H
#define GPUWM_SERVICE_STREAMS_H

/* Opens /dev/null in the place of those that are closed, so that the numbers 0 to 2 are never anything else: what
 * is logged would go there. First thing in a program. -errno: one is missing still. */
int streams_open(void);

#endif
