/* Regions as programs know them: made, opened, closed and removed. */
#include "blocks.h"
#include "../lib/request/call.h"
#include "../../base/clock.h"
#include "pool.h"
#include "queue.h"
#include "region.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

/* A loader makes and clears the memory: 120 GiB of host memory take 40 s with one core. */
#define CREATE_MS 120000

/* How long a close waits for streams. What is queued in a stream takes seconds at most, unless it waits for another process. */
#define CLOSE_MS 10000
/* How long it waits for functions of gpuwm_chunks_alloc_later that are being called. */
#define FUNCTIONS_MS 1000
#define CLOSE_LOOK_AGAIN_MS 1

/* ---- opening ------------------------------------------------------------- */

/* From now on nobody can map the memory for writing, nor write it with write(2). This process's mapping stays. */
static int region_seal(const struct gpuwm_region *region, struct error *error)
{
	if (region->writers == GPUWM_WRITERS_MANY || !region->device.ops->seals)
		return 0;
	if (fcntl(region->memory_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) == 0)
		return 0;
	return error_set(error, -errno, "GPUWM_WRITERS_MANY needs no seal",
			 "the memory of region %s could not be sealed: %s", region_title(region),
			 strerror(errno));
}

static int region_prepare(struct gpuwm_region *region, bool created, struct error *error)
{
	int r = 0;

	if (region->looks && region->kind != GPUWM_REGION_BLOCKS)
		r = error_set(error, -EINVAL, "open it without GPUWM_REGION_LOOK",
			      "region %s is of kind %s: only blocks are found without their memory",
			      region_title(region), region_kind_name(region->kind));
	if (r == 0)
		r = region_map(region, error);
	if (r == 0 && created)
		r = region_seal(region, error);
	region_close_fds(region);
	if (r == 0 && region->owns && region->kind == GPUWM_REGION_POOL)
		r = pool_new(region, &region->pool, error);
	if (r == 0 && region->kind == GPUWM_REGION_BLOCKS)
		r = blocks_new(region, &region->blocks, error);
	return r < 0 ? r : region_list_add(region, error);
}

static void region_give_back(struct gpuwm_client *client, const struct version_id *use)
{
	struct error unused;

	call_plain(client, &form_region_close, &(struct region_close_params){use}, &unused);
}

static void region_dispose(struct gpuwm_region *region)
{
	pool_free(region->pool);
	blocks_free(region->blocks);
	region_free(region);
}

/* The answer is read while it is there: its texts are gone afterwards. */
static int region_of_reply(struct gpuwm_client *client, struct reply *reply, const struct message_form *form,
			   struct gpuwm_region **ret, struct error *error)
{
	struct region_use use;
	int r = reply_read(reply, form, &use, error);

	if (r == 0)
		r = region_begin(client, &use, ret, error);
	if (r < 0)
		return r;
	/* A child that is forked meanwhile closes the descriptors that in_child finds. */
	fork_lock();
	r = packet_take_fd(&reply->packet, use.control, &(*ret)->control_fd);
	if (r == 0)
		r = packet_take_fd(&reply->packet, use.memory, &(*ret)->memory_fd);
	fork_unlock();
	if (r == 0)
		return 0;
	region_free(*ret);
	return error_set(error, -EPROTO, NULL, "gpuwmd's answer lacks a descriptor of the region");
}

/* use: what the request says. If the answer came and could not be read, the process does not stay a user. */
static int region_request(struct call *call, const struct version_id *use, bool looks, int64_t wait_ms,
			  struct gpuwm_region **ret, struct error *error)
{
	const bool created = call->form == &form_region_create;
	struct gpuwm_region *region;
	struct reply reply;
	int r;

	call->has_work = created;
	call->work_ms = CREATE_MS;
	r = call_run(call, wait_ms, &reply, error);
	if (r < 0) {
		if (r == -EMFILE || r == -ENFILE || r == -ENOMEM)
			region_give_back(call->client, use);
		return r;
	}
	r = region_of_reply(call->client, &reply, call->form, &region, error);
	reply_clear(&reply);
	if (r < 0) {
		region_give_back(call->client, use);
		return r;
	}
	region->looks = looks;
	r = region_prepare(region, created, error);
	if (r < 0) {
		region_give_back(region->client, &region->use);
		region_dispose(region);
		return r;
	}
	*ret = region;
	return 0;
}

static int new_use(struct version_id *ret, struct error *error)
{
	return version_id_new(ret) < 0
		       ? error_set(error, -EIO, NULL, "the kernel gave no random bytes for an id")
		       : 0;
}

int gpuwm_region_open(struct gpuwm_client *client, const char *name, unsigned flags, int64_t wait_ms,
		      struct gpuwm_region **ret_region)
{
	const unsigned all = GPUWM_REGION_WRITE | GPUWM_REGION_OWN | GPUWM_REGION_LOOK;
	const bool own = flags & GPUWM_REGION_OWN, looks = flags & GPUWM_REGION_LOOK;
	struct version_id use;
	const struct region_open_params params = {
		.region = name, .write = own || (flags & GPUWM_REGION_WRITE), .own = own, .use = &use};
	struct error error;
	struct call call;
	int r = client_check(client, &error);

	if (r == 0 && (!name || flags & ~all))
		r = error_set(&error, -EINVAL, NULL,
			      "a region is opened by its name or id, with flags of 1, 2 and 4");
	if (r == 0 && looks && flags != GPUWM_REGION_LOOK)
		r = error_set(&error, -EINVAL, "leave GPUWM_REGION_LOOK out",
			      "what is opened by GPUWM_REGION_LOOK is neither written nor owned");
	if (r == 0)
		r = new_use(&use, &error);
	if (r < 0)
		return client_fail(&error);
	call_begin(&call, client, &form_region_open, &params);
	r = region_request(&call, &use, looks, wait_ms, ret_region, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* ---- making --------------------------------------------------------------- */

int gpuwm_region_create(struct gpuwm_client *client, const struct gpuwm_region_options *given,
			struct gpuwm_region **ret_region)
{
	struct gpuwm_region_options options;
	struct region_create_params params;
	struct version_id use;
	struct error error;
	struct call call;
	int r = client_check(client, &error);

	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0)
		r = region_options_check(&options, &error);
	if (r == 0)
		r = new_use(&use, &error);
	if (r < 0)
		return client_fail(&error);
	params = region_options_params(&options);
	params.use = &use;
	call_begin(&call, client, &form_region_create, &params);
	r = region_request(&call, &use, false, options.wait_ms, ret_region, &error);
	return r < 0 ? client_fail(&error) : 0;
}

int gpuwm_region_remove(struct gpuwm_client *client, const char *region)
{
	struct error error;
	int r = client_check(client, &error);

	if (r == 0 && !region)
		r = error_set(&error, -EINVAL, NULL, "no region to remove was given");
	if (r == 0)
		r = call_plain(client, &form_region_remove, &(struct region_remove_params){region}, &error);
	return r < 0 ? client_fail(&error) : 0;
}

/* ---- closing --------------------------------------------------------------- */

/* Whether no stream has still to say that this process has written or read a chunk: it has no handles any more. */
static bool streams_have_passed(const struct gpuwm_region *region)
{
	const struct control *control = &region->control;

	for (uint32_t i = 0; i < control->count; i++) {
		const struct control_chunk *entry = &control->chunks[i];
		const uint64_t generation = atomic_load(&entry->generation), word = atomic_load(&entry->word);

		if (generation == 0)
			continue;
		if (atomic_load(&entry->writer) == region->slot && atomic_load(&entry->written) < generation)
			return false;
		if (chunk_word_is_of(word, generation) &&
		    chunk_word_state(word, region->slot) == CHUNK_HOLDING &&
		    atomic_load(control_finished(control, i, region->slot)) < generation)
			return false;
	}
	return true;
}

static int wait_for_streams(struct gpuwm_region *region, struct error *error)
{
	const int64_t deadline = clock_deadline(CLOSE_MS);

	if (!region_words_exist(region))
		return 0;
	while (!streams_have_passed(region)) {
		if (clock_left(deadline) == 0)
			return error_set(
				error, -EBUSY, "wait for the streams, then close it",
				"region %s can't be closed: for %d s, streams of this process have not "
				"passed what it has put into them",
				region_title(region), CLOSE_MS / 1000);
		poll(NULL, 0, CLOSE_LOOK_AGAIN_MS);
	}
	return region_words_end(region, error);
}

static int check_callers(const struct gpuwm_region *region, struct error *error)
{
	const int64_t deadline = clock_deadline(FUNCTIONS_MS);
	struct pool *pool = region->pool;
	uint32_t callers;

	if (!pool)
		return 0;
	pthread_mutex_lock(&pool->lock);
	/* Functions that learn that their requests were cancelled return soon. */
	while (pool->waiting == 0 && pool->later > 0 && clock_left(deadline) != 0)
		clock_wait(&pool->turn, &pool->lock, deadline);
	callers = pool->waiting > pool->later ? pool->waiting : pool->later;
	pthread_mutex_unlock(&pool->lock);
	if (callers == 0)
		return 0;
	return error_set(error, -EBUSY, "wait until their functions have returned",
			 "region %s can't be closed: %u callers wait for chunks", region_title(region),
			 callers);
}

int gpuwm_region_close(struct gpuwm_region *region)
{
	struct error error;
	int r;

	if (!region)
		return 0;
	r = fork_check(&region->hook, &error);
	if (r == 0)
		r = check_callers(region, &error);
	if (r == 0 && region->blocks)
		r = blocks_are_let_go(region->blocks, &error);
	if (r == 0)
		r = region_claim(region, &error);
	if (r < 0)
		return client_fail(&error);
	r = region->blocks ? blocks_wait_for_streams(region->blocks, CLOSE_MS, &error) : 0;
	if (r == 0)
		r = wait_for_streams(region, &error);
	if (r < 0) {
		region_claim_undo(region);
		return client_fail(&error);
	}
	if (region->client)
		region_give_back(region->client, &region->use);
	region_dispose(region);
	return 0;
}

void gpuwm_region_info(const struct gpuwm_region *region, struct gpuwm_region_info *ret_info)
{
	const bool queue = region->kind == GPUWM_REGION_QUEUE;

	*ret_info = (struct gpuwm_region_info){
		.id = region->id_text,
		.name = region->name,
		.device = region->device.id,
		.kind = region->kind,
		.writers = region->writers,
		.owner = region->owner,
		.bytes = region->bytes,
		.blocks = region->control.blocks.count,
		.block_bytes = region->block_bytes,
		.clear = region->clear,
		.chunks = region->control.count,
		.items = queue ? (uint32_t)(region->bytes / region->item_bytes) : 0,
		.item_bytes = queue ? queue_item_bytes(region->item_bytes) : 0,
		.slot = region->slot,
		.writes = region->writes,
		.owns = region->owns,
	};
}
