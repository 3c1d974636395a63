/* Events. gpuwmd numbers and encodes each event once and keeps it in a ring. A subscriber is only the number of the last event
 * that it was sent, so slow subscribers cost nothing. */
#ifndef GPUWM_DAEMON_EVENT_H
#define GPUWM_DAEMON_EVENT_H

#include "../../proto/wire/message_form.h"
#include "registry.h"

/* Users whom an event of no model may be for. If there are more of them, it is for everybody. */
#define EVENT_USERS_MAX 16

/* The model that an event is about, and the model's owner at that time. */
struct event_about {
	const char *model; /* NULL: of none */
	struct model_owner owner;
	bool for_observers; /* only operators and observers get it */
	bool for_users; /* only these users, operators and observers get it */
	uint32_t user_count; /* above EVENT_USERS_MAX: everybody gets it */
	uid_t users[EVENT_USERS_MAX];
	bool is_region; /* the model is the name of a region: other rules say who sees it (access_sees_region) */
	struct rule_cache rule; /* which section of the rules applies (config/rules.h) */
};

struct event_ring;
struct event_ring *event_ring_new(void);
struct event_ring *event_ring_free(struct event_ring *ring);
/* Sets the number after which events go on. Call it before the first event. A restart leaves a gap in the numbers, so a
 * subscriber that asks for earlier events gets a `lost` notice. */
#define EVENT_EPOCH_SHIFT 32
void event_ring_begin(struct event_ring *ring, uint64_t last);

/* Writes an event and keeps it: [2, "event", [{seq, kind, time_ms, …}]]. form: one of event_forms, whose keys it has, of a
 * struct of the form. If there is no memory, the event has its number, and subscribers get a `lost` notice. about: the model,
 * whose name is copied; only sessions that see the model get the event. NULL: the event is of no model. */
void event_emit(struct event_ring *ring, const struct message_form *form, const void *event,
		const struct event_about *about);

/* Returns the number of the last event; 0: there was none. */
uint64_t event_last(const struct event_ring *ring);
/* Returns how many events there were. */
uint64_t event_count(const struct event_ring *ring);

/* Skips the events after number `after` that the subscriber may not see, up to the first one that it may see. Returns the
 * number of the last skipped event, or `after`. */
typedef bool event_seen_fn(void *data, struct event_about *about);
uint64_t event_skip(struct event_ring *ring, uint64_t after, event_seen_fn *seen, void *data);
/* Finds the packet to send after number `after`: an event, or a `lost` notice if the next events are not in the ring any more.
 * Returns 1 and sets *ret_data, *ret_bytes and the number to go on from; the packet is valid until the next event_emit or
 * event_after. Returns 0 if there is nothing new, or no memory for the notice: ask again later. */
int event_after(struct event_ring *ring, uint64_t after, const void **ret_data, size_t *ret_bytes,
		uint64_t *ret_seq);

#endif
