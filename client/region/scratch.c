/* Scratch memory: gpuwmd says who holds it. */
#include "../lib/request/call.h"
#include "../lib/calls/connect.h"
#include "region.h"

#include "../../include/gpuwm/scratch.h"

#include <errno.h>

static int scratch_begin(struct gpuwm_region *region, enum region_scratch from, struct error *error)
{
	enum region_scratch state = from;

	if (atomic_compare_exchange_strong(&region->scratch, &state, SCRATCH_CHANGES))
		return 0;
	if (from == SCRATCH_HELD)
		return error_set(error, -EALREADY, "acquire it first", "this process does not hold region %s",
				 region_title(region));
	return error_set(error, -EALREADY, "release it first",
			 state == SCRATCH_HELD ? "this process holds region %s"
					       : "another thread of this process asks for region %s",
			 region_title(region));
}

static int scratch_check(const struct gpuwm_region *region, struct error *error)
{
	int r = region_usable(region, GPUWM_REGION_SCRATCH, error);

	if (r == 0 && !region->client)
		r = error_set(error, -EINVAL, NULL, "no gpuwmd knows of region %s", region_title(region));
	return r;
}

/* ---- acquire --------------------------------------------------------------- */

/* This process does not use the memory, which gpuwmd may have given to it. If gpuwmd can't be reached, it may count this process as the
 * holder until the process asks again, which succeeds at once, or closes the region. */
static void scratch_give_up(const struct gpuwm_region *region)
{
	const struct scratch_release_params params = {.use = &region->use, .untouched = true};
	struct error unused;

	call_plain(region->line, &form_scratch_release, &params, &unused);
}

static int scratch_ask(struct gpuwm_region *region, int64_t wait_ms, bool *ret_clear, struct error *error)
{
	const struct scratch_acquire_params params = {.use = &region->use};
	struct scratch_acquire_result result;
	struct reply reply;
	struct call call;
	int r = 0;

	/* Calls of one connection wait for each other. A thread that waits for the memory must not keep another one from giving other
	 * memory back, which the holder may wait for. So the region has a connection of its own, as soon as it needs one. Only the
	 * thread that has changed region->scratch is here. */
	if (!region->line && region->client->place.path)
		r = client_another(region->client, &region->line, error);
	else if (!region->line)
		region->line = client_keep(region->client);
	if (r < 0)
		return r;
	call_begin(&call, region->line, &form_scratch_acquire, &params);
	r = call_run(&call, wait_ms, &reply, error);
	if (r == 0) {
		r = reply_read(&reply, &form_scratch_acquire, &result, error);
		reply_clear(&reply);
		call.in_doubt = r < 0;
	}
	if (r == 0)
		*ret_clear = result.clear;
	else if (call.in_doubt && r != -ECONNREFUSED) /* gpuwmd is away */
		scratch_give_up(region);
	return r;
}

/* The last holder's work on the device has ended: it waited for that, or it has exited. The context is kept until the region is
 * closed: a process without one of its own would make one, in 100 ms and more, each time that the memory comes to it. */
static int scratch_clear(struct gpuwm_region *region, struct error *error)
{
	const struct memory_device *device = &region->device;
	int r = device->ops->idle(device, error); /* a stream that is being captured would be lost */

	if (r == 0 && !region->holds_context) {
		r = device->ops->hold(device, error);
		region->holds_context = r == 0;
	}
	if (r == 0)
		r = device->ops->enter(device, error);
	if (r < 0)
		return r;
	r = device->ops->zero(device, &region->memory, error);
	device->ops->leave(device);
	return r;
}

int gpuwm_scratch_acquire(struct gpuwm_region *region, int64_t wait_ms)
{
	bool must_clear = false;
	struct error error;
	int r = scratch_check(region, &error);

	if (r == 0)
		r = region_running(region, &error);
	if (r == 0 && !region->writes)
		r = error_set(&error, -EACCES, "open it with GPUWM_REGION_WRITE",
			      "this process has opened region %s for reading only", region_title(region));
	if (r == 0)
		r = scratch_begin(region, SCRATCH_IDLE, &error);
	if (r < 0)
		return client_fail(&error);
	r = scratch_ask(region, wait_ms, &must_clear, &error);
	if (r == 0 && must_clear) {
		r = scratch_clear(region, &error);
		if (r < 0)
			scratch_give_up(region);
	}
	atomic_store(&region->scratch, r < 0 ? SCRATCH_IDLE : SCRATCH_HELD);
	return r < 0 ? client_fail(&error) : 0;
}

/* ---- release --------------------------------------------------------------- */

int gpuwm_scratch_release(struct gpuwm_region *region)
{
	struct error error;
	int r = scratch_check(region, &error);

	if (r == 0)
		r = scratch_begin(region, SCRATCH_HELD, &error);
	if (r < 0)
		return client_fail(&error);
	r = region->device.ops->idle(&region->device, &error);
	if (r == 0 || r == -EIO) /* nothing runs any more in a broken context */
		r = call_plain(region->line, &form_scratch_release,
			       &(struct scratch_release_params){.use = &region->use}, &error);
	/* A gpuwmd that does not know this use has lost the region: nobody holds its memory any more. */
	atomic_store(&region->scratch, r < 0 && r != -ENOENT ? SCRATCH_HELD : SCRATCH_IDLE);
	return r < 0 ? client_fail(&error) : 0;
}
