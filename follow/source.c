#include "source.h"

#include "../proto/event_kind.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int query(struct source *source, const char *method, json_t **ret)
{
	char *text;
	int r = gpuwm_query(source->client, method, NULL, &text);

	if (r < 0)
		return r;
	*ret = json_loads(text, JSON_ALLOW_NUL, NULL);
	free(text);
	return *ret ? 0 : -ENOMEM;
}

/* After the others, on the same connection: it tells of the gpuwmd that answered those. */
static int ask_instance(struct source *source, struct look *ret)
{
	json_t *status;
	int r;

	ret->is_other = strcmp(source->instance, gpuwm_instance(source->client)) != 0;
	if (!ret->is_other)
		return 0;
	r = query(source, "status", &status);
	if (r < 0)
		return r;
	ret->uptime_ms = (uint64_t)json_integer_value(json_object_get(status, "uptime_ms"));
	json_decref(status);
	strcpy(source->instance, gpuwm_instance(source->client));
	return 0;
}

int source_look(struct source *source, struct look *ret)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const struct gpuwm_error *error;
	struct look look = {0};
	bool is_its;
	int r;

	options.socket = source->socket;
	options.restart_ms = SOURCE_WAIT_MS;
	r = source->client ? 0 : gpuwm_connect(&options, &source->client);
	/* Before the first look: what changes meanwhile comes as an event. */
	if (r == 0 && !source->events)
		r = gpuwm_events_open(source->client, UINT64_MAX, &source->events);
	if (r == 0)
		r = query(source, "list", &look.list);
	if (r == 0)
		r = query(source, "clients", &look.clients);
	if (r == 0)
		r = ask_instance(source, &look);
	if (r < 0) {
		look_clear(&look);
		/* Logs, once, why: the library's last call has failed with this code, or there is no memory for what it
		 * returned. */
		error = gpuwm_error();
		is_its = error->code == r;
		log_trouble(&source->trouble,
			    "gpuwmd can't be asked, and no server is changed until it can: %s%s%s",
			    is_its ? error->message : "out of memory", is_its && *error->detail ? ": " : "",
			    is_its ? error->detail : "");
		return r;
	}
	log_trouble_over(&source->trouble, "gpuwmd tells what there is again");
	*ret = look;
	return 0;
}

void look_clear(struct look *look)
{
	json_decref(look->list);
	json_decref(look->clients);
	*look = (struct look){0};
}

int source_fd(const struct source *source)
{
	return source->events ? gpuwm_events_get_fd(source->events) : -1;
}

/* These change where requests go. */
static void on_event(const struct gpuwm_event *event, void *user_data)
{
	static const char *const kinds[] = {EVENT_ANNOUNCED,     EVENT_SWAPPED,        EVENT_LOST,
					    EVENT_VERSION_READY, EVENT_VERSION_FAILED, EVENT_DISCONNECTED};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(event->kind, kinds[i]) == 0)
			*(bool *)user_data = true;
	}
}

bool source_heard(struct source *source)
{
	bool changed = false;
	int r = gpuwm_events_dispatch(source->events, 0, on_event, &changed);

	if (r >= 0)
		return changed;
	/* Ended, or an event could not be told: the next look asks for all. */
	if (r == -ECONNRESET)
		source->events = gpuwm_events_close(source->events);
	return true;
}

void source_close(struct source *source)
{
	source->events = gpuwm_events_close(source->events);
	source->client = gpuwm_close(source->client);
}
