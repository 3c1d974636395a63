/* events: prints what gpuwmd tells its subscribers. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "terminal.h"

#include "../../proto/event_kind.h"
#include "../../service/jansson_text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct option_number after, count;
static const struct option_row events_options[] = {
	{"after", "first print the events after number SEQ that gpuwmd still keeps", "SEQ", take_number,
	 .into = &after, .most = UINT64_MAX - 1},
	{"count", "end after N events", "N", take_number, .into = &count, .most = UINT64_MAX},
	{0},
};

struct event_printing {
	bool json;
	uint64_t left; /* events to print */
	uint64_t seq; /* of the last one */
};

/* The keys that have no column, as KEY=VALUE. */
static void event_rest_add(struct line *line, const json_t *event)
{
	static const char *const shown[] = {"seq", "time_ms", "kind", "model", "tag", "alias", "version"};
	json_t *all = (json_t *)event;
	const char *key;
	json_t *value;

	json_object_foreach(all, key, value) {
		bool known = json_is_null(value);
		char *text;

		for (size_t i = 0; i < sizeof(shown) / sizeof(shown[0]); i++)
			known = known || strcmp(key, shown[i]) == 0;
		if (known)
			continue;
		text = jansson_text(value);
		line_add(line, " %s=%s", key, text ? text : "?");
		free(text);
	}
}

static void event_print(const struct gpuwm_event *event, const json_t *all)
{
	const uint64_t ms = answer_number(all, "time_ms"); /* since 1970 */
	const time_t seconds = (time_t)(ms / 1000);
	struct line line = {0};
	struct tm local;
	char at[16];

	if (ms == 0 || !localtime_r(&seconds, &local) || strftime(at, sizeof(at), "%H:%M:%S", &local) == 0)
		strcpy(at, "-");
	line_add(&line, "%" PRIu64 "  %s  %s", event->seq, at, event->kind);
	if (*event->model)
		line_add(&line, " %s%s%s", event->model, *event->tag || *event->alias ? "@" : "",
			 *event->alias ? event->alias : event->tag);
	if (*event->version)
		line_add(&line, " %s", event->version);
	event_rest_add(&line, all);
	line_say(&line);
}

static void event_show(const struct gpuwm_event *event, void *user_data)
{
	struct event_printing *printing = user_data;
	json_t *all;

	printing->seq = event->seq;
	if (printing->left == 0 || strcmp(event->kind, EVENT_DISCONNECTED) == 0)
		return;
	printing->left--;
	all = json_loads(event->json, JSON_ALLOW_NUL, NULL);
	if (printing->json) {
		/* "lost" is a message of its own, without this key. */
		json_object_set_new(all, "kind", json_string(event->kind));
		answer_print(json_incref(all));
	} else {
		event_print(event, all);
	}
	json_decref(all);
	fflush(stdout); /* somebody may be waiting at the other end of a pipe */
}

static int events_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct event_printing printing = {.json = arguments->json,
					  .left = count.given ? count.value : UINT64_MAX};
	struct gpuwm_events *events = NULL;
	int code = EXIT_DONE;

	if (gpuwm_events_open(client, after.given ? after.value : UINT64_MAX, &events) < 0)
		return exit_with_error();
	/* Only for people: a script's stderr stays empty while nothing is wrong. */
	if (terminal_is(STDERR_FILENO) && printing.left > 0)
		fprintf(stderr, "waiting for events; Ctrl-C ends\n");
	while (printing.left > 0 && code == EXIT_DONE && !ferror(stdout)) {
		int r = gpuwm_events_dispatch(events, -1, event_show, &printing);

		/* The next gpuwmd goes on; what it can't tell shows as "lost". */
		if (r == -ECONNRESET) {
			events = gpuwm_events_close(events);
			r = gpuwm_events_open(client, printing.seq, &events);
		}
		if (r < 0 && r != -EINTR)
			code = exit_with_error();
	}
	gpuwm_events_close(events);
	return code;
}

const struct command command_events = {
	.name = "events",
	.summary = "print events as they happen",
	.options = events_options,
	.example = "gpuwmctl events --after 0 --count 10",
	.no_names = true,
	.run = events_run,
};
