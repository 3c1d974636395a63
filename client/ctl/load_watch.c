#include "load.h"

#include "exit.h"
#include "hub.h"
#include "output.h"
#include "patience.h"
#include "terminal.h"

#include "../../base/clock.h"
#include "../../proto/event_kind.h"
#include "../../service/peer_address.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct job_watch {
	uint64_t job;
	struct progress progress;
	bool quiet; /* the progress is not shown: it would stand among errors that are data */
	bool ended; /* or not told any more: gpuwm_job_wait knows */
	bool lost; /* events, its end perhaps */
	bool cancelled;
};

/* ---- Ctrl-C ------------------------------------------------------------ */

static const char cancelled_text[] =
	"\ngpuwmctl: the load is being cancelled\n  Ctrl-C again only stops watching\n";
static const char goes_on_text[] =
	"\ngpuwmctl: the load goes on\n  gpuwmctl jobs lists it; Ctrl-C again only stops watching\n";

static const char *volatile interrupt_text;
static volatile sig_atomic_t interrupted;

/* The first Ctrl-C says what happens; the second one has the default effect. */
static void interrupt_told(int signal_number)
{
	int saved = errno;
	const char *text = interrupt_text;
	ssize_t written = write(STDERR_FILENO, text, strlen(text));

	(void)written;
	(void)signal_number;
	interrupted = 1;
	errno = saved;
}

static void interrupt_begin(enum load_interrupt interrupt)
{
	struct sigaction action = {.sa_handler = interrupt_told, .sa_flags = SA_RESETHAND | SA_RESTART};

	interrupt_text = interrupt == LOAD_CANCELLED ? cancelled_text : goes_on_text;
	sigaction(SIGINT, &action, NULL);
}

static void interrupt_name_job(uint64_t job)
{
	static char with_job[160]; /* the handler reads it */

	snprintf(with_job, sizeof(with_job),
		 "\ngpuwmctl: job %" PRIu64 " goes on\n  gpuwmctl cancel %" PRIu64
		 " ends it; Ctrl-C again only stops watching\n",
		 job, job);
	interrupt_text = with_job;
}

/* ---- watching ---------------------------------------------------------- */

static void job_event(const struct gpuwm_event *event, void *user_data)
{
	struct job_watch *watch = user_data;
	json_t *all;

	if (strcmp(event->kind, EVENT_LOST) == 0)
		watch->lost = true;
	if (strcmp(event->kind, EVENT_JOB) != 0)
		return;
	all = json_loads(event->json, JSON_ALLOW_NUL, NULL);
	if (answer_number(all, "job") == watch->job) {
		if (*answer_text(all, "phase") && !watch->quiet)
			progress_update(&watch->progress, answer_text(all, "phase"), answer_number(all, "done"),
					answer_number(all, "total"), clock_steady_ns());
		watch->ended = job_is_over(all);
	}
	json_decref(all);
}

/* What is to be done after each wait. */
static void job_look(struct gpuwm_client *client, struct job_watch *watch, enum load_interrupt interrupt)
{
	json_t *job;

	if (!watch->quiet)
		progress_tick(&watch->progress, clock_steady_ns());
	if (watch->lost) {
		watch->lost = false;
		watch->ended = true;
		if (answer_job(client, watch->job, &job) == EXIT_DONE) {
			watch->ended = job_is_over(job);
			json_decref(job);
		}
	}
	if (interrupt == LOAD_CANCELLED && interrupted && !watch->cancelled) {
		watch->cancelled = true;
		gpuwm_job_cancel(client, watch->job); /* of one that has just ended its wait tells */
	}
}

/* 0, or the job's own error, or that of the connection. */
static int job_follow(struct gpuwm_client *client, struct gpuwm_events *events, enum load_interrupt interrupt,
		      struct job_watch *watch)
{
	int error = 0;

	/* Where gpuwmd went away there is no more progress to tell, but an end. */
	while (!watch->ended && error != -ECONNRESET) {
		error = gpuwm_events_dispatch(events, PROGRESS_TICK_MS, job_event, watch);
		if (error < 0 && error != -EINTR && error != -ECONNRESET)
			return error;
		job_look(client, watch, interrupt);
	}
	do
		error = gpuwm_job_wait(client, watch->job, -1);
	while (error == -EINTR);
	return error;
}

/* ---- its end ----------------------------------------------------------- */

/* The job ended with its gpuwmd; what was ready by then is there. */
static int job_outlived(struct gpuwm_client *client, const struct gpuwm_load_options *options,
			struct load_result *result)
{
	json_t *list;
	const char *id;
	int code = answer_get(client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	id = answer_ref(list, options->name);
	snprintf(result->version, sizeof(result->version), "%s", id);
	if (strcmp(answer_text(answer_version(list, id), "state"), "ready") != 0)
		code = exit_with(EXIT_FAILED, "load it again",
				 "gpuwmd went away before %s was ready, and the version went with it",
				 options->name);
	json_decref(list);
	return code;
}

int load_watch(struct gpuwm_client *client, const struct gpuwm_load_options *options,
	       enum load_interrupt interrupt, struct load_result *ret_result)
{
	struct load_result result = {0};
	struct job_watch watch = {0};
	struct gpuwm_events *events;
	const char *instance;
	int code, error;

	/* Before the load: no event of the job is missed. */
	if (gpuwm_events_open(client, UINT64_MAX, &events) < 0)
		return exit_with_error();
	/* Before the load, so that none is left to itself. */
	interrupt_begin(interrupt);
	if (gpuwm_load(client, options, &watch.job) < 0) {
		code = exit_with_error();
		gpuwm_events_close(events);
		return code;
	}
	instance = gpuwm_instance(client);
	if (interrupt == LOAD_GOES_ON)
		interrupt_name_job(watch.job);
	watch.quiet = output_is_data() && !terminal_is(STDERR_FILENO);
	progress_start(&watch.progress, terminal_columns(STDERR_FILENO));
	error = job_follow(client, events, interrupt, &watch);
	progress_end(&watch.progress);
	gpuwm_events_close(events);
	result.job = watch.job;
	if (error < 0 && strcmp(instance, gpuwm_instance(client)) != 0)
		code = job_outlived(client, options, &result);
	else if (error < 0)
		code = exit_with_error();
	else
		code = answer_job(client, result.job, &result.told);
	if (result.told)
		snprintf(result.version, sizeof(result.version), "%s", answer_text(result.told, "version"));
	if (code == EXIT_DONE)
		*ret_result = result;
	return code;
}

void load_result_clear(struct load_result *result)
{
	json_decref(result->told);
	result->told = NULL;
}

/* ---- sources ----------------------------------------------------------- */

/* Takes the "." and ".." off that it begins with, and what they mean off `directory`, which has no links in it
 * and becomes "" for the root. */
static const char *source_up(const char *source, char *directory)
{
	while (source[0] == '.') {
		size_t dots = source[1] == '.' ? 2 : 1;

		if (source[dots] != '/' && source[dots] != '\0')
			break;
		if (dots == 2 && *directory)
			*strrchr(directory, '/') = '\0';
		source += dots;
		while (source[0] == '/')
			source++;
	}
	return source;
}

char *load_source(const char *source)
{
	struct hub_snapshot snapshot;
	char *directory, *path = NULL;

	if (hub_is_source(source)) {
		int code;

		patience_begin(source, PATIENCE_MS, NULL);
		code = hub_find(source, &snapshot);
		patience_end();
		if (code != EXIT_DONE)
			return NULL;
		path = snapshot.folder;
		snapshot.folder = NULL;
		hub_clear(&snapshot);
		return path;
	}
	if (source[0] == '/' || peer_source(source)) {
		path = strdup(source);
		if (!path)
			exit_with(EXIT_FAILED, NULL, "out of memory");
		return path;
	}
	directory = getcwd(NULL, 0);
	if (directory && strcmp(directory, "/") == 0)
		*directory = '\0';
	if (directory)
		source = source_up(source, directory);
	if (directory && asprintf(&path, "%s%s%s", directory, *source || !*directory ? "/" : "", source) < 0)
		path = NULL;
	free(directory);
	if (!path)
		exit_with(EXIT_FAILED, NULL, "can't find out the working directory: write an absolute path");
	return path;
}
