#include "view.h"

#include "../answer.h"

#include "../../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define SAMPLE_MS 900 /* between two samples: what redraws because of an event takes none */

static int look_failed(struct look *look)
{
	snprintf(look->problem, sizeof(look->problem), "%s", gpuwm_error()->message);
	return gpuwm_error()->code;
}

static void look_disconnect(struct look *look)
{
	look->events = gpuwm_events_close(look->events);
	look->client = gpuwm_close(look->client);
}

static int look_connect(struct look *look, unsigned flags)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = look->socket;
	options.name = "gpuwmctl top";
	options.flags = flags | GPUWM_CONNECT_ONCE;
	options.restart_ms = 1; /* a key must not wait for the next gpuwmd */
	return gpuwm_connect(&options, &look->client);
}

/* Sets *answer anew. A method that this user may not call, or that this gpuwmd does not have, gives NULL. */
static int look_ask(struct look *look, const char *method, json_t **answer)
{
	json_t *now = NULL;
	int r = answer_ask(look->client, method, NULL, &now);

	if (r == -ECONNRESET || r == -EPIPE || r == -ETIMEDOUT || r == -ECONNREFUSED)
		return look_failed(look);
	json_decref(*answer);
	*answer = now;
	return 0;
}

static void samples_drop(struct look *look, size_t count)
{
	for (size_t i = 0; i < count; i++)
		json_decref(look->samples[i].metrics);
	look->sample_count -= count;
	memmove(look->samples, look->samples + count, look->sample_count * sizeof(look->samples[0]));
}

static void sample_add(struct look *look)
{
	const uint64_t now = clock_steady_ms();
	size_t last = look->sample_count - 1;

	if (look->sample_count > 0 && !rates_fit(look->samples[last].metrics, look->metrics))
		samples_drop(look, look->sample_count);
	if (!look->metrics || (look->sample_count > 0 && now - look->samples[last].at_ms < SAMPLE_MS))
		return;
	if (look->sample_count == LOOK_SAMPLES)
		samples_drop(look, 1);
	look->samples[look->sample_count].metrics = json_incref(look->metrics);
	look->samples[look->sample_count++].at_ms = now;
}

int look_take(struct look *look)
{
	int r = 0;

	if (!look->client) {
		r = look_connect(look, GPUWM_CONNECT_ADMIN);
		/* Users who are no operators see what the workers' socket tells them. */
		if (r == -EACCES || r == -EPERM || r == -ENOENT || r == -ECONNREFUSED)
			r = look_connect(look, 0);
		if (r < 0 || gpuwm_events_open(look->client, UINT64_MAX, &look->events) < 0)
			r = look_failed(look);
	}
	if (r == 0)
		r = look_ask(look, "status", &look->status);
	if (r == 0)
		r = look_ask(look, "list", &look->list);
	if (r == 0)
		r = look_ask(look, "clients", &look->clients);
	if (r == 0)
		r = look_ask(look, "jobs", &look->jobs);
	if (r == 0)
		r = look_ask(look, "metrics", &look->metrics);
	if (r < 0) {
		look_disconnect(look);
		return r;
	}
	look->problem[0] = '\0';
	sample_add(look);
	return 0;
}

static void event_count(const struct gpuwm_event *event, void *user_data)
{
	(void)event;
	*(bool *)user_data = true;
}

bool look_events(struct look *look)
{
	bool came = false;

	if (look->events && gpuwm_events_dispatch(look->events, 0, event_count, &came) == -ECONNRESET) {
		look_disconnect(look);
		return true;
	}
	return came;
}

int look_fd(const struct look *look)
{
	return look->events ? gpuwm_events_get_fd(look->events) : -1;
}

void look_end(struct look *look)
{
	json_t *all[] = {look->status, look->list, look->clients, look->jobs, look->metrics};

	samples_drop(look, look->sample_count);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		json_decref(all[i]);
	look_disconnect(look);
}
