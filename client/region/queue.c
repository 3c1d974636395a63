#include "queue.h"

#include <errno.h>

uint32_t queue_cell_bytes(uint32_t item_bytes)
{
	return item_bytes + QUEUE_CELL_HEAD_BYTES;
}

uint32_t queue_item_bytes(uint32_t cell_bytes)
{
	return cell_bytes - QUEUE_CELL_HEAD_BYTES;
}

int queue_is_damaged(const struct gpuwm_region *queue, const char *what, struct error *error)
{
	return error_set(error, -EUCLEAN, "remove the region, and make another one",
			 "somebody has written over the queue %s: %s", region_title(queue), what);
}

int queue_look(const struct gpuwm_region *queue, struct queue_state *ret, struct error *error)
{
	const struct control_head *head = queue->control.head;
	const struct queue_state state = {
		.first = atomic_load(&head->first),
		.end = atomic_load(&head->end),
		.cells = queue->bytes / queue->item_bytes,
		.closed = atomic_load(&head->closed),
	};

	if (state.end - state.first > state.cells)
		return queue_is_damaged(queue, "it has more messages than cells", error);
	*ret = state;
	return 0;
}

char *queue_cell(const struct gpuwm_region *queue, uint64_t number)
{
	const uint64_t cells = queue->bytes / queue->item_bytes;

	return (char *)queue->memory.address + number % cells * queue->item_bytes;
}

bool queue_fits(const struct gpuwm_region *queue, const struct queue_cell_head *head)
{
	return (uint64_t)head->token_count * sizeof(struct gpuwm_token) + head->bytes <=
	       queue_item_bytes(queue->item_bytes);
}

int gpuwm_queue_length(struct gpuwm_region *queue, uint64_t *ret_messages)
{
	struct queue_state state;
	struct error error;
	int r = region_usable(queue, GPUWM_REGION_QUEUE, &error);

	if (r == 0)
		r = queue_look(queue, &state, &error);
	if (r < 0)
		return client_fail(&error);
	*ret_messages = state.end - state.first;
	return 0;
}

int gpuwm_queue_shut(struct gpuwm_region *queue)
{
	struct error error;
	int r = region_usable(queue, GPUWM_REGION_QUEUE, &error);

	if (r < 0)
		return client_fail(&error);
	atomic_store(&queue->control.head->closed, 1);
	control_ring(&queue->control.head->put);
	control_ring(&queue->control.head->got);
	return 0;
}
