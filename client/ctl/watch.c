#include "command.h"

#include "exit.h"
#include "output.h"
#include "terminal.h"

#include "../../base/clock.h"

#include <errno.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Between two drawings at least: events may come by the thousand. */
#define PAUSE_MS 100

struct watching {
	struct gpuwm_client *client;
	const struct arguments *arguments;
	command_fn *run;
	struct gpuwm_events *events;
	bool on_screen;
	char *last; /* what was appended last, or NULL */
};

/* ---- one result -------------------------------------------------------------- */

/* What the command prints while its output is kept. */
struct kept {
	FILE *stream, **standard, *before;
	char *text;
	size_t bytes;
};

/* Puts a stream to memory in the place of stdout or stderr. Returns 0 or -ENOMEM. */
static int stream_keep(struct kept *kept, FILE **standard)
{
	*kept = (struct kept){.standard = standard, .before = *standard};
	kept->stream = open_memstream(&kept->text, &kept->bytes);
	if (!kept->stream)
		return -ENOMEM;
	*standard = kept->stream;
	return 0;
}

static void stream_keep_end(struct kept *kept)
{
	if (!kept->stream)
		return;
	fclose(kept->stream);
	*kept->standard = kept->before;
}

/* Returns the exit code of the command. The caller frees both texts. */
static int run_kept(const struct watching *w, char **ret_result, char **ret_errors)
{
	struct kept result, errors = {0};
	int code = EXIT_FAILED;

	if (stream_keep(&result, &stdout) == 0 && stream_keep(&errors, &stderr) == 0)
		code = w->run(w->client, w->arguments);
	stream_keep_end(&errors);
	stream_keep_end(&result);
	*ret_result = result.text;
	*ret_errors = errors.text;
	return code;
}

/* Draws or appends the result, or ends the screen and prints the errors after which there are no more results. */
static int result_look(struct watching *w)
{
	char *result = NULL, *errors = NULL;
	int code = run_kept(w, &result, &errors);

	if (code != EXIT_DONE || !result) {
		screen_end();
		fputs(errors ? errors : "gpuwmctl: out of memory for the result\n", stderr);
		free(result);
	} else if (w->on_screen) {
		screen_draw(result);
		free(result);
	} else {
		const bool same = w->last && strcmp(w->last, result) == 0;

		if (!same && output_is_data())
			fputs(result, stdout);
		else if (!same)
			screen_draw(result);
		fflush(stdout);
		free(w->last);
		w->last = result;
	}
	free(errors);
	return code;
}

/* ---- until the next one ------------------------------------------------------ */

static void event_ignore(const struct gpuwm_event *event, void *user_data)
{
	(void)event, (void)user_data;
}

/* Returns 'q' if the user wants no more, else 0, after an event or the interval; or a negative errno, if the next gpuwmd is not
 * there in time. */
static int next_wait(struct watching *w)
{
	const uint64_t drawn = clock_steady_ms(), next = drawn + w->arguments->watch.value;
	bool changed = false;
	int r = 0;

	for (uint64_t now = drawn; now < next && r >= 0; now = clock_steady_ms()) {
		const bool may_draw = now - drawn >= PAUSE_MS;
		const uint64_t until = changed || !may_draw ? drawn + PAUSE_MS : next;
		int what;

		if (changed && may_draw)
			return 0;
		what = screen_wait(changed ? -1 : gpuwm_events_get_fd(w->events),
				   gpuwm_events_get_events(w->events), until - now);
		if (what == 'q' || what == 'Q')
			return 'q';
		if (what == SCREEN_RESIZED)
			return 0;
		if (what != SCREEN_READY)
			continue;
		changed = true;
		r = gpuwm_events_dispatch(w->events, 0, event_ignore, NULL);
		if (r == -ECONNRESET) {
			w->events = gpuwm_events_close(w->events);
			r = gpuwm_events_open(w->client, UINT64_MAX, &w->events);
		}
	}
	return r < 0 ? r : 0;
}

int watch(struct gpuwm_client *client, const struct arguments *arguments, command_fn *run)
{
	struct watching w = {.client = client, .arguments = arguments, .run = run};
	int code, what = 0;

	if (gpuwm_events_open(client, UINT64_MAX, &w.events) < 0)
		return exit_with_error();
	w.on_screen = terminal_is(STDOUT_FILENO) && !output_is_data();
	if (w.on_screen)
		screen_begin();
	else
		screen_begin_appending();
	do
		code = result_look(&w);
	while (code == EXIT_DONE && !ferror(stdout) && (what = next_wait(&w)) == 0);
	screen_end();
	if (code == EXIT_DONE && what < 0)
		code = exit_with_error();
	gpuwm_events_close(w.events);
	free(w.last);
	return code;
}
