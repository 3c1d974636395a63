/* Queues: messages. What is known of them stands in the head of the control memory. */
#include "region.h"

#include "../../proto/wire/messages_region.h"

/* Both numbers grow while gpuwmd reads them: what was the first message before is not behind the end, and the end is not further than all
 * cells from what is the first one afterwards. */
static const char *queue_damage(const struct region *region)
{
	const struct control_head *head = region->control.head;
	const uint64_t before = atomic_load(&head->first), end = atomic_load(&head->end),
		       after = atomic_load(&head->first);

	if (before <= end && (after >= end || end - after <= region->is.bytes / region->is.item_bytes))
		return NULL;
	return "its first message and its last one do not go together";
}

static void queue_count(const struct region *region, struct region_figures *ret)
{
	const struct control_head *head = region->control.head;
	const uint64_t cells = region->is.bytes / region->is.item_bytes;
	const uint64_t messages = atomic_load(&head->end) - atomic_load(&head->first);

	ret->messages = messages < cells ? messages : cells;
}

const struct region_kind region_kind_queue = {
	.name = REGION_KIND_QUEUE,
	.item = "message",
	.has_exact_bytes = true,
	.damage = queue_damage,
	.count = queue_count,
	.look = queue_count,
};
