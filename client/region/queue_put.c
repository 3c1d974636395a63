/* Putting a message into a queue. */
#include "../../base/clock.h"
#include "queue.h"

#include <errno.h>
#include <string.h>

struct message_given {
	struct queue_cell_head head;
	const void *data;
	const struct gpuwm_token *tokens;
};

static int message_check(const struct gpuwm_region *queue, const struct message_given *given,
			 struct error *error)
{
	const struct queue_cell_head *head = &given->head;
	int r = region_usable(queue, GPUWM_REGION_QUEUE, error);

	if (r < 0)
		return r;
	if ((!given->data && head->bytes > 0) || (!given->tokens && head->token_count > 0))
		return error_set(error, -EINVAL, NULL, "data or tokens have numbers, and were not given");
	if (!queue->writes)
		return error_set(error, -EACCES, "open it with GPUWM_REGION_WRITE",
				 "this process has not opened queue %s for writing", region_title(queue));
	if (head->token_count > QUEUE_TOKENS_MAX)
		return error_set(error, -EMSGSIZE, "at most 1,024", "a message can't have %u tokens",
				 head->token_count);
	if (!queue_fits(queue, head))
		return error_set(
			error, -EMSGSIZE, "put the data into a chunk, or make a queue with larger items",
			"a message with %u bytes and %u tokens of %zu bytes has no room in an item of %u",
			head->bytes, head->token_count, sizeof(struct gpuwm_token),
			queue_item_bytes(queue->item_bytes));
	return 0;
}

/* Under the lock. The message is there with the store of `end`. */
static int message_put(struct gpuwm_region *queue, const struct message_given *given, struct error *error)
{
	const size_t token_bytes = given->head.token_count * sizeof(*given->tokens);
	struct queue_state state;
	char *cell;
	int r = queue_look(queue, &state, error);

	if (r < 0)
		return r;
	if (state.closed)
		return error_set(error, -EPIPE, NULL, "queue %s was closed", region_title(queue));
	if (state.end - state.first == state.cells)
		return error_set(error, -EAGAIN, "get messages sooner, or wait for longer",
				 "queue %s is full: %llu messages wait", region_title(queue),
				 (unsigned long long)state.cells);
	cell = queue_cell(queue, state.end);
	memcpy(cell, &given->head, sizeof(given->head));
	if (token_bytes > 0)
		memcpy(cell + sizeof(given->head), given->tokens, token_bytes);
	if (given->head.bytes > 0)
		memcpy(cell + sizeof(given->head) + token_bytes, given->data, given->head.bytes);
	atomic_store(&queue->control.head->end, state.end + 1);
	return 0;
}

static int put_now(struct gpuwm_region *queue, const struct message_given *given, int64_t deadline,
		   struct error *error)
{
	int r = region_running(queue, error);

	if (r == 0)
		r = queue_lock(queue, deadline, error);
	if (r < 0)
		return r;
	r = message_put(queue, given, error);
	queue_unlock(queue);
	if (r == 0)
		control_ring(&queue->control.head->put);
	return r;
}

static int put_waiting(struct gpuwm_region *queue, const struct message_given *given, int64_t deadline,
		       struct error *error)
{
	struct control_bell *bell = &queue->control.head->got;
	uint32_t seen;
	int r, left;

	for (;;) {
		seen = atomic_load(&bell->rung);
		r = put_now(queue, given, deadline, error);
		left = clock_left(deadline);
		if (r != -EAGAIN || left == 0)
			return r;
		control_sleep(bell, seen, left);
	}
}

int gpuwm_queue_put(struct gpuwm_region *queue, const void *data, uint32_t bytes,
		    const struct gpuwm_token *tokens, uint32_t token_count, int64_t wait_ms)
{
	const struct message_given given = {{bytes, token_count}, data, tokens};
	struct error error;
	int r = message_check(queue, &given, &error);

	if (r == 0)
		r = put_waiting(queue, &given, clock_deadline(wait_ms), &error);
	return r < 0 ? client_fail(&error) : 0;
}
