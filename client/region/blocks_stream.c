/* Blocks that are published or released when a stream has got there. A thread of the driver does it, so that READY means that the bytes
 * are there, for everybody who can read the word. */
#include "blocks.h"

#include "../../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* How often a close looks whether the streams have got there. */
#define LOOK_AGAIN_MS 1
/* And at every how many of these looks, whether the context is broken, which takes the driver some 10 us. */
#define BROKEN_LOOKS 50

/* What a stream is to do. The stream has it until it has called `stream_got_there`. */
struct order {
	struct blocks *blocks;
	bool publishes; /* else it releases */
	struct order *prev, *next; /* in blocks->orders */
	size_t count;
	struct gpuwm_block list[];
};

/* ---- the driver's thread --------------------------------------------------------- */

static void order_publish(struct blocks *blocks, const struct order *order)
{
	for (size_t i = 0; i < order->count; i++) {
		struct block_use *use = blocks_use_of(blocks, order->list[i]);

		if (!use || use->owning != BLOCK_PUBLISHING)
			continue;
		use->owning = BLOCK_NOT_OWNED;
		blocks_step(blocks, BLOCK_PUBLISH, order->list[i]);
	}
	control_ring(blocks->freed);
}

static void order_release(struct blocks *blocks, const struct order *order)
{
	for (size_t i = 0; i < order->count; i++) {
		struct block_use *use = blocks_use_of(blocks, order->list[i]);

		if (use && use->leaving > 0)
			use->leaving--;
	}
	blocks_release_words(blocks, order->list, order->count);
}

static void stream_got_there(void *user_data)
{
	struct order *order = user_data;
	struct blocks *blocks = order->blocks;
	bool open, last;

	pthread_mutex_lock(&blocks->lock);
	open = blocks->region;
	if (open && order->publishes)
		order_publish(blocks, order);
	else if (open)
		order_release(blocks, order);
	DL_DELETE(blocks->orders, order);
	last = --blocks->functions == 0 && !open;
	pthread_mutex_unlock(&blocks->lock);
	free(order);
	if (last)
		blocks_free_uncalled(blocks);
}

/* ---- putting it into a stream ------------------------------------------------------ */

static int order_new(struct blocks *blocks, const struct gpuwm_block *list, size_t count, struct order **ret,
		     struct error *error)
{
	struct order *order = NULL;

	if (count <= (SIZE_MAX - sizeof(*order)) / sizeof(*list))
		order = malloc(sizeof(*order) + count * sizeof(*list));
	if (!order)
		return error_set(error, -ENOMEM, NULL, "out of memory for %zu blocks of region %s", count,
				 region_title(blocks->region));
	order->blocks = blocks;
	order->count = count;
	if (count > 0)
		memcpy(order->list, list, count * sizeof(*list));
	*ret = order;
	return 0;
}

/* Takes the blocks from this process's threads. */
static int order_give_to_stream(struct order *order, struct error *error)
{
	struct blocks *blocks = order->blocks;
	int r;

	pthread_mutex_lock(&blocks->lock);
	if (order->publishes)
		r = blocks_disown(blocks, order->list, order->count, BLOCKS_BY_STREAM, error);
	else
		r = blocks_unhold(blocks, order->list, order->count, BLOCKS_BY_STREAM, error);
	if (r == 0) {
		DL_APPEND(blocks->orders, order);
		blocks->functions++;
	}
	pthread_mutex_unlock(&blocks->lock);
	return r;
}

static void order_take_back(struct order *order)
{
	struct blocks *blocks = order->blocks;

	pthread_mutex_lock(&blocks->lock);
	if (order->publishes)
		blocks_disown_undo(blocks, order->list, order->count);
	else
		blocks_unhold_undo(blocks, order->list, order->count, BLOCKS_BY_STREAM);
	DL_DELETE(blocks->orders, order);
	blocks->functions--;
	pthread_mutex_unlock(&blocks->lock);
}

static int in_stream(struct gpuwm_region *region, const struct gpuwm_block *list, size_t count, void *stream,
		     bool publishes)
{
	struct blocks *blocks;
	struct order *order = NULL;
	struct error error;
	int r = blocks_of(region, list, count, &blocks, &error);

	if (r == 0 && (region->looks || !region->device.ops->call_in_stream))
		r = error_set(
			&error, -ENOTSUP, "call the function without _in_stream",
			region->looks
				? "this process has opened region %s to look only: it has no streams on %s"
				: "region %s is on %s, which has no streams",
			region_title(region), region->device.id);
	if (r == 0)
		r = order_new(blocks, list, count, &order, &error);
	if (r < 0)
		return client_fail(&error);
	order->publishes = publishes;
	r = order_give_to_stream(order, &error);
	if (r == 0) {
		/* Without the lock: the call waits if the stream is full, and then for functions that want the lock. */
		r = region->device.ops->call_in_stream(&region->device, stream, stream_got_there, order,
						       &error);
		if (r < 0)
			order_take_back(order);
	}
	if (r < 0) {
		free(order);
		return client_fail(&error);
	}
	return 0;
}

int gpuwm_blocks_publish_in_stream(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count,
				   void *stream)
{
	return in_stream(region, blocks, count, stream, true);
}

int gpuwm_blocks_release_in_stream(struct gpuwm_region *region, const struct gpuwm_block *blocks, size_t count,
				   void *stream)
{
	return in_stream(region, blocks, count, stream, false);
}

/* ---- closing --------------------------------------------------------------------------- */

int blocks_wait_for_streams(struct blocks *blocks, int wait_ms, struct error *error)
{
	const struct memory_device *device = &blocks->region->device;
	const int64_t deadline = clock_deadline(wait_ms);
	uint32_t functions;

	for (unsigned looks = 0;; looks++) {
		pthread_mutex_lock(&blocks->lock);
		functions = blocks->functions;
		pthread_mutex_unlock(&blocks->lock);
		if (functions == 0 || (looks % BROKEN_LOOKS == 0 && device->ops->is_broken(device)))
			return 0;
		if (clock_left(deadline) == 0)
			return error_set(
				error, -EBUSY, "wait for the streams, then close it",
				"region %s can't be closed: for %d s, streams of this process have not "
				"got to %u functions that publish or release its blocks",
				region_title(blocks->region), wait_ms / 1000, functions);
		poll(NULL, 0, LOOK_AGAIN_MS);
	}
}
