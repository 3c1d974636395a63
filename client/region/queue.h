/* The ring of messages in a queue's memory. Message NUMBER lies in cell NUMBER modulo the number of cells: the number of its bytes and
 * of its tokens, then the tokens, then the bytes. */
#ifndef GPUWM_LIB_QUEUE_H
#define GPUWM_LIB_QUEUE_H

#include "region.h"

/* How many bytes the cell of a message has, and the other way round. */
uint32_t queue_cell_bytes(uint32_t item_bytes);
uint32_t queue_item_bytes(uint32_t cell_bytes);

/* Takes the queue's lock: of this process's threads, and of all processes. Whatever the deadline (base/clock.h), it waits for a moment for
 * those that have the lock. Fails with -EBUSY, whose message names the process that has the lock, and as region_running. */
int queue_lock(struct gpuwm_region *queue, int64_t deadline, struct error *error);
void queue_unlock(struct gpuwm_region *queue);

/* What lies in the queue. */
struct queue_state {
	uint64_t first, end; /* the oldest message, and the number of the next one */
	uint64_t cells;
	bool closed;
};
/* Fails with -EUCLEAN if somebody wrote what no user writes. */
int queue_look(const struct gpuwm_region *queue, struct queue_state *ret, struct error *error);
/* The cell of a message. */
char *queue_cell(const struct gpuwm_region *queue, uint64_t number);
int queue_is_damaged(const struct gpuwm_region *queue, const char *what, struct error *error);

/* What a cell begins with. */
struct queue_cell_head {
	uint32_t bytes, token_count;
};
_Static_assert(sizeof(struct queue_cell_head) == QUEUE_CELL_HEAD_BYTES, "the head of a cell has other bytes");

/* Whether a message with so many bytes and tokens fits. */
bool queue_fits(const struct gpuwm_region *queue, const struct queue_cell_head *head);

#endif
