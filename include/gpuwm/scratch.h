/* gpuwm: scratch memory, which one process holds at a time. Activation buffers of engines that never run together, for example.
 *
 * A region of the kind GPUWM_REGION_SCRATCH is mapped by all of its users, and used by its holder only. gpuwmd hands it on in the order in
 * which they have asked. When a process has exited, it holds nothing, and gpuwmd hands on what it held.
 *
 * That is a rule between processes that trust each other: all of them have the memory mapped for writing. */
#ifndef GPUWM_SCRATCH_H
#define GPUWM_SCRATCH_H

#include "region.h"

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default)

/* Waits for wait_ms (0: not at all; -1: for ever) until this process holds the memory. If the region was made with `clear`, and somebody
 * else has held it since, this function clears it: on a GPU the first time makes the device's context, which is kept until
 * gpuwm_region_close. Any thread; the process holds it once. While gpuwmd is away, it waits for the next
 * one as every call does (restart_ms of gpuwm_connect), whatever wait_ms is.
 *
 * Fails with
 *   -ETIMEDOUT  The message names the holder, and how many have asked before.
 *   -EALREADY   This process holds it, or another thread of it waits.
 *   -EINVAL     The region is no scratch.
 *   -EACCES     This process has not opened it for writing.
 *   -EBUSY      The memory is to be cleared, and a stream is being captured.
 *   -ECHILD, -EIO, those of gpuwm_region_check, and the codes of calls in gpuwm/client.h
 * Then this process does not hold it. If gpuwmd can't be reached, gpuwmd may count this process as the holder until it asks again, which
 * succeeds at once, or closes the region. */
int gpuwm_scratch_acquire(struct gpuwm_region *region, int64_t wait_ms);
/* Waits until the device is idle as far as this process uses it, and gives the memory to the next one. If gpuwmd can't be reached, the
 * process still holds it.
 *
 * Fails with -EALREADY if this process does not hold it; -EBUSY: a stream is being captured; -EINVAL, -ECHILD, and the codes of calls. */
int gpuwm_scratch_release(struct gpuwm_region *region);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif

#endif
