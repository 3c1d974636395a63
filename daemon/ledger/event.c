#include "event.h"
#include "../../base/clock.h"
#include "../../proto/wire/messages.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct event_slot {
	void *data; /* NULL: there was no memory for it */
	size_t bytes;
	struct event_about about; /* its model lies behind the data */
};

struct event_ring {
	uint64_t last, before; /* before: the number before the first one */
	struct event_slot slots[EVENTS_KEPT_MAX]; /* number n in n % EVENTS_KEPT_MAX */
	struct message_writer lost; /* the last notice, kept while the caller sends it */
};

struct event_ring *event_ring_new(void)
{
	struct event_ring *ring = calloc(1, sizeof(*ring));

	if (ring)
		message_writer_init(&ring->lost, PACKET_BYTES_MAX);
	return ring;
}

void event_ring_begin(struct event_ring *ring, uint64_t last)
{
	ring->last = ring->before = last;
}

struct event_ring *event_ring_free(struct event_ring *ring)
{
	if (!ring)
		return NULL;
	for (size_t i = 0; i < EVENTS_KEPT_MAX; i++)
		free(ring->slots[i].data);
	message_writer_clear(&ring->lost);
	free(ring);
	return NULL;
}

/* The writer's own buffer is 8 KiB, an event some 200 bytes; with REVOKED_PER_EVENT leases 1 KiB. */
static void event_keep(struct event_slot *slot, const struct message_writer *w, const struct event_about *about)
{
	size_t name = about->model ? strlen(about->model) + 1 : 0;
	char *data = malloc(w->buffer.size + name);

	if (!data)
		return;
	memcpy(data, w->buffer.data, w->buffer.size);
	*slot = (struct event_slot){.data = data, .bytes = w->buffer.size, .about = *about};
	if (about->model)
		slot->about.model = memcpy(data + w->buffer.size, about->model, name);
}

void event_emit(struct event_ring *ring, const struct message_form *form, const void *event,
		const struct event_about *about)
{
	struct event_slot *slot = &ring->slots[++ring->last % EVENTS_KEPT_MAX];
	struct message_writer w;

	free(slot->data);
	*slot = (struct event_slot){0};
	message_writer_init(&w, PACKET_BYTES_MAX);
	message_notification(&w, form_event.name);
	record_put(&w, form_event.params, &(struct event_params){ring->last, form->name, clock_wall_ms()});
	record_put(&w, form->params, event);
	message_end(&w);
	if (message_finish(&w) == 0)
		event_keep(slot, &w, about ? about : &(struct event_about){0});
	message_writer_clear(&w);
}

uint64_t event_last(const struct event_ring *ring)
{
	return ring->last;
}

uint64_t event_count(const struct event_ring *ring)
{
	return ring->last - ring->before;
}

static bool is_kept(const struct event_ring *ring, uint64_t number)
{
	return ring->last - number < EVENTS_KEPT_MAX && ring->slots[number % EVENTS_KEPT_MAX].data;
}

static int tell_lost(struct event_ring *ring, uint64_t from, const void **ret_data, size_t *ret_bytes,
		     uint64_t *ret_seq)
{
	struct message_writer *w = &ring->lost;
	uint64_t to = from;

	if (ring->last - to >= EVENTS_KEPT_MAX)
		to = ring->last - EVENTS_KEPT_MAX;
	while (to < ring->last && !is_kept(ring, to + 1))
		to++;
	message_writer_clear(w);
	message_write_notification(w, &form_lost, &(struct lost_params){from, to});
	if (message_finish(w) < 0)
		return 0;
	*ret_data = w->buffer.data;
	*ret_bytes = w->buffer.size;
	*ret_seq = to;
	return 1;
}

uint64_t event_skip(struct event_ring *ring, uint64_t after, event_seen_fn *seen, void *data)
{
	while (after < ring->last && is_kept(ring, after + 1)) {
		struct event_about *about = &ring->slots[(after + 1) % EVENTS_KEPT_MAX].about;

		if ((!about->model && !about->for_observers && !about->for_users) || seen(data, about))
			break;
		after++;
	}
	return after;
}

int event_after(struct event_ring *ring, uint64_t after, const void **ret_data, size_t *ret_bytes,
		uint64_t *ret_seq)
{
	const struct event_slot *slot;

	if (after >= ring->last)
		return 0;
	if (!is_kept(ring, after + 1))
		return tell_lost(ring, after + 1, ret_data, ret_bytes, ret_seq);
	slot = &ring->slots[(after + 1) % EVENTS_KEPT_MAX];
	*ret_data = slot->data;
	*ret_bytes = slot->bytes;
	*ret_seq = after + 1;
	return 1;
}
