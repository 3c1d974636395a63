/* Getting a message out of a queue, with the chunks that it hands over. */
#include "chunk.h"
#include "../../base/clock.h"
#include "queue.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- a message ------------------------------------------------------------ */

/* One allocation has the message, its chunks, its tokens and its data. */
static struct gpuwm_message *message_new(const struct queue_cell_head *head, const char *body)
{
	const size_t chunk_bytes = head->token_count * sizeof(struct gpuwm_chunk *);
	const size_t token_bytes = head->token_count * sizeof(struct gpuwm_token);
	struct gpuwm_message *message =
		calloc(1, sizeof(*message) + chunk_bytes + token_bytes + head->bytes + 1);
	char *at;

	if (!message)
		return NULL;
	at = (char *)(message + 1);
	message->bytes = head->bytes;
	message->chunk_count = head->token_count;
	message->chunks = (struct gpuwm_chunk **)at;
	message->tokens = (struct gpuwm_token *)(at + chunk_bytes);
	message->data = at + chunk_bytes + token_bytes;
	memcpy(message->tokens, body, token_bytes);
	memcpy(message->data, body + token_bytes, head->bytes);
	return message;
}

/* Nothing was taken yet. */
static void message_undo_new(struct gpuwm_message *message)
{
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		if (message->chunks[i])
			chunk_free(message->chunks[i]);
	}
	free(message);
}

void gpuwm_message_free(struct gpuwm_message *message)
{
	if (!message)
		return;
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		if (message->chunks[i])
			gpuwm_chunk_finish(message->chunks[i]);
	}
	free(message);
}

/* ---- its chunks ------------------------------------------------------------ */

/* What the caller says of pools, and what it is told. */
struct queue_pools {
	const char *const *gone;
	size_t gone_count;
	struct version_id missing; /* that the message needs */
};

static bool pool_is_gone(const struct queue_pools *pools, const struct version_id *id)
{
	struct version_id gone;

	for (size_t i = 0; i < pools->gone_count; i++) {
		if (hex128_parse(pools->gone[i], gone.bytes) == 0 && version_id_equal(&gone, id))
			return true;
	}
	return false;
}

/* Makes the handle that a token needs. There is none if the token can't be right, or if its pool is gone. */
static int token_make_handle(const struct gpuwm_token *token, struct gpuwm_chunk **ret,
			     struct queue_pools *pools, struct error *error)
{
	struct version_id id;
	struct gpuwm_region *pool;
	struct chunk_use use;

	memcpy(id.bytes, token->region, sizeof(id.bytes));
	pool = region_list_use(&id);
	if (!pool && pool_is_gone(pools, &id))
		return 0;
	if (!pool) {
		pools->missing = id;
		return error_set(error, -ENXIO, "open it, then get the message",
				 "the message needs a pool that this process has not opened");
	}
	if (pool->kind == GPUWM_REGION_POOL && chunk_of_token(pool, token, &use, error) == 0) {
		*ret = chunk_new(pool);
		if (*ret)
			(*ret)->use = use;
		else
			error_set(error, -ENOMEM, NULL, "out of memory for a chunk");
		region_unuse(pool);
		return *ret ? 0 : -ENOMEM;
	}
	region_unuse(pool);
	return 0;
}

/* A chunk that can't be taken any more has no handle. */
static void message_take_chunks(struct gpuwm_message *message)
{
	struct error unused;

	for (uint32_t i = 0; i < message->chunk_count; i++) {
		if (!message->chunks[i] || chunk_take(&message->chunks[i]->use, &unused) == 0)
			continue;
		chunk_free(message->chunks[i]);
		message->chunks[i] = NULL;
	}
}

/* ---- getting it ------------------------------------------------------------ */

/* Under the lock. The message is gone with the store of `first`: its chunks are taken before. */
static int queue_get_oldest(struct gpuwm_region *queue, struct gpuwm_message **ret, struct queue_pools *pools,
			    struct error *error)
{
	struct gpuwm_message *message;
	struct queue_cell_head head;
	struct queue_state state;
	const char *cell;
	int r = queue_look(queue, &state, error);

	if (r < 0)
		return r;
	if (state.first == state.end && state.closed)
		return error_set(error, -EPIPE, NULL, "queue %s was closed", region_title(queue));
	if (state.first == state.end)
		return error_set(error, -EAGAIN, NULL, "queue %s is empty", region_title(queue));
	/* The message is copied out of its cell, which is checked: anybody could have written it. */
	cell = queue_cell(queue, state.first);
	memcpy(&head, cell, sizeof(head));
	if (head.token_count > QUEUE_TOKENS_MAX || !queue_fits(queue, &head))
		return queue_is_damaged(queue, "a message is larger than its cell", error);
	message = message_new(&head, cell + sizeof(head));
	if (!message)
		return error_set(error, -ENOMEM, NULL, "out of memory for a message");
	for (uint32_t i = 0; i < message->chunk_count; i++) {
		r = token_make_handle(&message->tokens[i], &message->chunks[i], pools, error);
		if (r < 0) {
			message_undo_new(message);
			return r;
		}
	}
	message_take_chunks(message);
	atomic_store(&queue->control.head->first, state.first + 1);
	*ret = message;
	return 0;
}

static int get_now(struct gpuwm_region *queue, int64_t deadline, struct gpuwm_message **ret,
		   struct queue_pools *pools, struct error *error)
{
	int r = region_running(queue, error);

	if (r == 0)
		r = queue_lock(queue, deadline, error);
	if (r < 0)
		return r;
	r = queue_get_oldest(queue, ret, pools, error);
	queue_unlock(queue);
	if (r == 0)
		control_ring(&queue->control.head->got);
	return r;
}

static int get_waiting(struct gpuwm_region *queue, int64_t deadline, struct gpuwm_message **ret,
		       struct queue_pools *pools, struct error *error)
{
	struct control_bell *bell = &queue->control.head->put;
	uint32_t seen;
	int r, left;

	for (;;) {
		seen = atomic_load(&bell->rung);
		r = get_now(queue, deadline, ret, pools, error);
		left = clock_left(deadline);
		if (r != -EAGAIN || left == 0)
			return r;
		control_sleep(bell, seen, left);
	}
}

int gpuwm_queue_get(struct gpuwm_region *queue, int64_t wait_ms, const char *const *gone, size_t gone_count,
		    struct gpuwm_message **ret_message, char ret_pool[33])
{
	struct queue_pools pools = {.gone = gone, .gone_count = gone_count};
	struct version_id id;
	struct error error;
	int r = region_usable(queue, GPUWM_REGION_QUEUE, &error);

	for (size_t i = 0; r == 0 && i < gone_count; i++) {
		if (!gone || !gone[i] || hex128_parse(gone[i], id.bytes) < 0)
			r = error_set(&error, -EINVAL, NULL, "entry %zu of `gone` is no id of a pool", i);
	}
	if (r == 0)
		r = get_waiting(queue, clock_deadline(wait_ms), ret_message, &pools, &error);
	if (r == -ENXIO && ret_pool)
		hex128_format(pools.missing.bytes, ret_pool);
	return r < 0 ? client_fail(&error) : 0;
}
