/* A subscription on a connection of its own. */
#include "../request/client.h"
#include "../../../base/clock.h"
#include "../../../proto/event_kind.h"
#include "../connection/dial.h"

#include "../json.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Before connecting again to a gpuwmd that ends: it takes new connections until it is gone. */
#define AGAIN_MS 20

/* An event that has arrived and was not told yet. */
struct pending {
	uint64_t seq;
	char kind[32];
	char model[NAME_BYTES_MAX + 1], tag[NAME_BYTES_MAX + 1], alias[NAME_BYTES_MAX + 1];
	char version[VERSION_ID_TEXT];
	char *json;
	struct pending *next;
};

struct gpuwm_events {
	struct connection *connection;
	struct fork_hook hook;
	struct pending *first, **last;
	uint64_t seq; /* of the last event told, or before the first */
	struct error refused; /* why the first event since the last dispatch was not kept; code 0: all were */
	bool ended; /* "disconnected" was told */
};

static void nothing_in_child(void *object)
{
	(void)object;
}

static void pending_free(struct pending *event)
{
	free(event->json);
	free(event);
}

static int event_read(struct pending *event, const struct message *message, struct error *error)
{
	struct event_subject subject;
	struct event_params params;
	int r = record_read(form_event.params, message, &params, error);

	if (r == 0)
		r = record_read(&event_subject_record, message, &subject, error);
	if (r < 0)
		return r;
	event->seq = params.seq;
	snprintf(event->kind, sizeof(event->kind), "%s", params.kind);
	snprintf(event->model, sizeof(event->model), "%s", subject.model);
	snprintf(event->tag, sizeof(event->tag), "%s", subject.tag);
	snprintf(event->alias, sizeof(event->alias), "%s", subject.alias);
	if (subject.version)
		hex128_format(subject.version->bytes, event->version);
	return 0;
}

/* Fails with -ENOMEM, and with -EPROTO if the message is not what docs/protocol.md says. */
static int pending_new(const struct message *message, struct pending **ret, struct error *error)
{
	const bool is_lost = strcmp(message->method, form_lost.name) == 0;
	struct pending *event = calloc(1, sizeof(*event));
	struct lost_params lost;
	struct error why;
	int r = -ENOMEM;

	if (event)
		event->json = json_text(message->body);
	if (event && event->json)
		r = is_lost ? record_read(form_lost.params, message, &lost, &why)
			    : event_read(event, message, &why);
	if (r == 0 && is_lost) {
		strcpy(event->kind, form_lost.name);
		event->seq = lost.to;
	}
	if (r == 0) {
		*ret = event;
		return 0;
	}
	if (event)
		pending_free(event);
	if (r == -ENOMEM)
		return error_set(error, r, "list again", "out of memory: events were lost");
	return error_set(error, -EPROTO, "list again", "%s: %s", message->method, why.message);
}

static void on_notify(struct message *message, struct packet *packet, void *user_data, uint64_t round)
{
	struct gpuwm_events *events = user_data;
	struct pending *event = NULL;
	struct error error;

	(void)packet;
	(void)round;
	if (strcmp(message->method, form_event.name) != 0 && strcmp(message->method, form_lost.name) != 0)
		return;
	if (pending_new(message, &event, &error) < 0) {
		if (!events->refused.code)
			events->refused = error;
		return;
	}
	*events->last = event;
	events->last = &event->next;
}

static int events_subscribe(struct gpuwm_events *events, uint64_t after, struct error *error)
{
	struct subscribe_result result;
	struct message_writer w;
	struct reply reply;
	int r;

	connection_on_notify(events->connection, on_notify, events, 0);
	message_write_request(&w, request_next_id(), &form_subscribe,
			      &(struct subscribe_params){after == UINT64_MAX ? NULL : &after});
	r = connection_call(events->connection, &w, CALL_TIMEOUT_MS, &reply, error);
	message_writer_clear(&w);
	if (r < 0)
		return r;
	/* Where to go on when the connection ends before the first event. */
	r = reply_read(&reply, &form_subscribe, &result, error);
	if (r == 0)
		events->seq = after == UINT64_MAX ? result.seq : after;
	reply_clear(&reply);
	return r;
}

static int events_open(struct gpuwm_client *client, uint64_t after, struct gpuwm_events *events,
		       struct error *error)
{
	const int64_t deadline = clock_deadline(client->restart_ms);
	struct dial_target to = {.places = &client->place,
				 .count = 1,
				 .name = client->name,
				 .timeout_ms = dial_again_ms(client->restart_ms),
				 .restart_ms = client->restart_ms};
	size_t unused;
	int r;

	if (!client->place.path)
		return error_set(error, -EINVAL, NULL, "this client has no path to connect to again");
	/* Again where gpuwmd ends in between. */
	for (;;) {
		to.wait_ms = clock_until(deadline);
		r = dial(&to, &unused, &events->connection, NULL, error);
		if (r == 0)
			r = events_subscribe(events, after, error);
		if (r != -ECONNRESET || clock_left(deadline) == 0)
			return r;
		events->connection = connection_free(events->connection);
		poll(NULL, 0, AGAIN_MS);
	}
}

int gpuwm_events_open(struct gpuwm_client *client, uint64_t after, struct gpuwm_events **ret_events)
{
	struct gpuwm_events *events;
	struct error error;
	int r = client_check(client, &error);

	if (r < 0)
		return client_fail(&error);
	events = calloc(1, sizeof(*events));
	if (!events) {
		error_set(&error, -ENOMEM, NULL, "out of memory for a subscription");
		return client_fail(&error);
	}
	events->last = &events->first;
	fork_watch(&events->hook, nothing_in_child, events);
	r = events_open(client, after, events, &error);
	if (r < 0) {
		gpuwm_events_close(events);
		return client_fail(&error);
	}
	*ret_events = events;
	return 0;
}

static struct pending *pending_take(struct gpuwm_events *events)
{
	struct pending *event = events->first;

	if (!event)
		return NULL;
	events->first = event->next;
	if (!events->first)
		events->last = &events->first;
	return event;
}

struct gpuwm_events *gpuwm_events_close(struct gpuwm_events *events)
{
	struct pending *event;

	if (!events)
		return NULL;
	while ((event = pending_take(events)))
		pending_free(event);
	fork_unwatch(&events->hook);
	connection_free(events->connection);
	free(events);
	return NULL;
}

int gpuwm_events_get_fd(const struct gpuwm_events *events)
{
	return connection_fd(events->connection);
}

short gpuwm_events_get_events(const struct gpuwm_events *events)
{
	(void)events;
	return POLLIN;
}

static void event_tell(struct gpuwm_events *events, const struct pending *event, gpuwm_event_fn *fn,
		       void *user_data)
{
	struct gpuwm_event told = {
		.seq = event->seq,
		.kind = event->kind,
		.model = event->model,
		.tag = event->tag,
		.alias = event->alias,
		.version = event->version,
		.json = event->json,
	};

	events->seq = event->seq;
	fn(&told, user_data);
}

int gpuwm_events_dispatch(struct gpuwm_events *events, int64_t wait_ms, gpuwm_event_fn *fn, void *user_data)
{
	struct pending *event, end;
	struct error error;
	int r = fork_check(&events->hook, &error), count = 0;

	if (r < 0)
		return client_fail(&error);
	if (!events->ended)
		r = connection_poll(events->connection, events->first ? 0 : wait_ms);
	while ((event = pending_take(events))) {
		event_tell(events, event, fn, user_data);
		pending_free(event);
		count++;
	}
	if (events->refused.code) {
		error = events->refused;
		events->refused.code = 0;
		return client_fail(&error);
	}
	if (count > 0 || (r >= 0 && !events->ended))
		return count;
	if (!events->ended) {
		events->ended = true;
		end = (struct pending){.seq = events->seq, .kind = EVENT_DISCONNECTED, .json = "{}"};
		event_tell(events, &end, fn, user_data);
	}
	error_set(&error, -ECONNRESET, "connect again, with the last seq", "the subscription has ended");
	return client_fail(&error);
}
