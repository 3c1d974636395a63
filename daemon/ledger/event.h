/* Events: numbered, encoded once, kept in a ring. A subscriber is only a
 * number (the last it was sent), so slow ones cost nothing. */
#ifndef GPUWM_DAEMON_EVENT_H
#define GPUWM_DAEMON_EVENT_H

#include "../../proto/message.h"
#include "registry.h"

/* Which model an event speaks of, and whose that was then. */
struct event_about {
	const char *model; /* NULL: of none */
	struct model_owner owner;
	struct rule_cache rule; /* for whoever knows the rules */
};

struct event_ring;
struct event_ring *event_ring_new(void);
struct event_ring *event_ring_free(struct event_ring *ring);
/* Before the first event: numbers go on after `last`. A restart leaves a gap, so that they go
 * up across it, and who asks for what was before is told `lost`. */
#define EVENT_EPOCH_SHIFT 32
void event_ring_begin(struct event_ring *ring, uint64_t last);

/* Begins an event: [2, "event", [{seq, kind, time_ms, …}]] in *w; the caller
 * adds its keys and calls event_emit, which closes, numbers and keeps it and
 * clears w. Out of memory: the number is used and subscribers are told `lost`. */
void event_begin(struct event_ring *ring, struct message_writer *w, const char *kind);
void event_emit(struct event_ring *ring, struct message_writer *w);
/* The same of an event that speaks of a model, whose name is copied: only those see it who see the model. */
void event_emit_about(struct event_ring *ring, struct message_writer *w, const struct event_about *about);

/* The number of the last event; 0: none yet. */
uint64_t event_last(const struct event_ring *ring);

/* The number to go on from: `after`, or that of the last of the events behind it, as far as they speak of models that
 * who asks does not see. */
typedef bool event_seen_fn(void *data, struct event_about *about);
uint64_t event_skip(struct event_ring *ring, uint64_t after, event_seen_fn *seen, void *data);
/* The packet to send after number `after`: an event, or a `lost` notice where
 * the next ones are gone. *ret_seq is the number to go on from. 0: nothing new; 1: a packet,
 * valid until the next event_emit or event_after. Out of memory for the notice: 0, ask again. */
int event_after(struct event_ring *ring, uint64_t after, const void **ret_data, size_t *ret_bytes,
		uint64_t *ret_seq);

#endif
