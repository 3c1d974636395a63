/* Words of a region's control memory that streams write and wait for. */
#ifndef GPUWM_LIB_REGION_WORDS_H
#define GPUWM_LIB_REGION_WORDS_H

#include "region.h"

/* Puts a store of the value, or a wait for it, into a stream of the region's device. The first call registers the control memory with
 * the driver. Fails with -ENOTSUP (the region is on host, or the device can't), -EBUSY (the stream is being captured), -EIO and
 * -ENOMEM. */
int region_words_write(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		       struct error *error);
int region_words_wait(struct gpuwm_region *region, void *stream, _Atomic uint64_t *word, uint64_t value,
		      struct error *error);
/* Whether streams may finish with chunks of the region. Nobody rings the bell then. */
bool region_words_exist(const struct gpuwm_region *region);
/* Waits until the device is idle, and ends the registration. */
int region_words_end(struct gpuwm_region *region, struct error *error);

#endif
