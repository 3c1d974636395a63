/* load, and watching its job. */
#include "ctl.h"

#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct job_watch {
	uint64_t job;
	struct progress progress;
	bool ended; /* or not told any more: gpuwm_job_wait knows */
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* ---- Ctrl-C ------------------------------------------------------------ */

static char interrupt_text[160];

/* The first Ctrl-C says what goes on; the second one has the default effect. */
static void interrupt_told(int signal_number)
{
	int saved = errno;
	ssize_t written = write(STDERR_FILENO, interrupt_text, strlen(interrupt_text));

	(void)written;
	(void)signal_number;
	errno = saved;
}

static void interrupt_prepare(uint64_t job)
{
	struct sigaction action = {.sa_handler = interrupt_told, .sa_flags = SA_RESETHAND | SA_RESTART};

	snprintf(interrupt_text, sizeof(interrupt_text),
		 "\ngpuwmctl: job %" PRIu64 " goes on\n  gpuwmctl cancel %" PRIu64
		 " ends it; Ctrl-C again only stops watching\n",
		 job, job);
	sigaction(SIGINT, &action, NULL);
}

/* ---- watching ---------------------------------------------------------- */

static void job_event(const struct gpuwm_event *event, void *user_data)
{
	struct job_watch *watch = user_data;
	const char *state;
	json_t *all;

	if (strcmp(event->kind, "lost") == 0)
		watch->ended = true;
	if (strcmp(event->kind, "job") != 0)
		return;
	all = json_loads(event->json, JSON_ALLOW_NUL, NULL);
	if (answer_number(all, "job") == watch->job) {
		state = answer_text(all, "state");
		if (*answer_text(all, "phase"))
			progress_update(&watch->progress, answer_text(all, "phase"), answer_number(all, "done"),
					answer_number(all, "total"), now_ns());
		watch->ended = strcmp(state, "running") != 0 && strcmp(state, "queued") != 0;
	}
	json_decref(all);
}

/* 0, or the job's own error, or that of the connection. */
static int job_follow(struct gpuwm_client *client, struct gpuwm_events *events, struct job_watch *watch)
{
	int error = 0;

	/* Where gpuwmd went away there is no more progress to tell, but an end. */
	while (!watch->ended && error != -ECONNRESET) {
		error = gpuwm_events_dispatch(events, -1, job_event, watch);
		if (error < 0 && error != -EINTR && error != -ECONNRESET)
			return error;
	}
	do
		error = gpuwm_job_wait(client, watch->job, -1);
	while (error == -EINTR);
	return error;
}

/* Its version is ready; an error tells that the alias was not moved. */
static int job_print(struct gpuwm_client *client, const struct arguments *arguments, uint64_t job)
{
	struct arguments quiet = *arguments;
	char number[24];
	json_t *jobs, *one, *error;
	int code;

	quiet.json = false;
	snprintf(number, sizeof(number), "%" PRIu64, job);
	code = answer_query(client, &quiet, "jobs", number, &jobs);
	if (code != EXIT_DONE)
		return code;
	one = json_array_get(json_object_get(jobs, "jobs"), 0);
	error = json_object_get(one, "error");
	if (arguments->json)
		code = answer_print(json_incref(one));
	else if (!error)
		printf("job %" PRIu64 ": %s is ready\n", job, arguments->positional[1]);
	if (error && code == EXIT_DONE)
		code = exit_with(EXIT_FAILED, answer_text(error, "detail"), "%s",
				 answer_text(error, "message"));
	json_decref(jobs);
	return code;
}

/* Whether the alias that was asked for names the version. */
static bool alias_moved(const json_t *list, const struct gpuwm_load_options *options, const char *id)
{
	char ref[600];

	snprintf(ref, sizeof(ref), "%.*s@%s", (int)strcspn(options->name, "@"), options->name,
		 options->alias ? options->alias : "");
	return !options->alias || strcmp(answer_ref(list, ref), id) == 0;
}

static int outlived_print(const json_t *list, const struct arguments *arguments,
			  const struct gpuwm_load_options *options, uint64_t job)
{
	const char *id = answer_ref(list, options->name);

	if (strcmp(answer_text(answer_version(list, id), "state"), "ready") != 0)
		return exit_with(EXIT_FAILED, "load it again",
				 "gpuwmd went away before %s was ready: what is not ready is not kept",
				 options->name);
	if (!alias_moved(list, options, id))
		return exit_with(EXIT_FAILED, "gpuwmctl swap moves it",
				 "%s is ready, but gpuwmd went away, and the alias %s is not there",
				 options->name, options->alias);
	if (arguments->json)
		return answer_print(
			json_pack("{s:I, s:s, s:s}", "job", (json_int_t)job, "state", "done", "version", id));
	printf("job %" PRIu64 ": %s is ready\n", job, options->name);
	return EXIT_DONE;
}

/* The job ended with its gpuwmd; what was ready by then is there. */
static int job_outlived(struct gpuwm_client *client, const struct arguments *arguments,
			const struct gpuwm_load_options *options, uint64_t job)
{
	struct arguments quiet = *arguments;
	json_t *list;
	int code;

	quiet.json = false;
	code = answer_query(client, &quiet, "list", NULL, &list);
	if (code != EXIT_DONE)
		return code;
	code = outlived_print(list, arguments, options, job);
	json_decref(list);
	return code;
}

static int load_watched(struct gpuwm_client *client, const struct arguments *arguments,
			const struct gpuwm_load_options *options)
{
	struct job_watch watch = {0};
	struct gpuwm_events *events;
	const char *instance;
	int code, error;

	/* Before the load: no event of the job is missed. */
	if (gpuwm_events_open(client, UINT64_MAX, &events) < 0)
		return exit_with_error();
	if (gpuwm_load(client, options, &watch.job) < 0) {
		code = exit_with_error();
		gpuwm_events_close(events);
		return code;
	}
	instance = gpuwm_instance(client);
	interrupt_prepare(watch.job);
	progress_start(&watch.progress, isatty(STDERR_FILENO));
	error = job_follow(client, events, &watch);
	progress_end(&watch.progress);
	gpuwm_events_close(events);
	if (error < 0 && strcmp(instance, gpuwm_instance(client)) != 0)
		return job_outlived(client, arguments, options, watch.job);
	if (error < 0)
		return exit_with_error();
	return job_print(client, arguments, watch.job);
}

/* ---- load -------------------------------------------------------------- */

/* free() the text; NULL when memory is short or there is no working directory. */
static char *source_absolute(const char *source)
{
	char *directory, *path = NULL;

	if (source[0] == '/')
		return strdup(source);
	directory = getcwd(NULL, 0);
	while (strncmp(source, "./", 2) == 0)
		source += 2;
	if (strcmp(source, ".") == 0)
		source = "";
	if (directory && asprintf(&path, "%s%s%s", directory, *source ? "/" : "", source) < 0)
		path = NULL;
	free(directory);
	return path;
}

static int load_unwatched(struct gpuwm_client *client, const struct arguments *arguments,
			  const struct gpuwm_load_options *options)
{
	uint64_t job;

	if (gpuwm_load(client, options, &job) < 0)
		return exit_with_error();
	if (arguments->json)
		return answer_print(json_pack("{s:I}", "job", (json_int_t)job));
	printf("job %" PRIu64 " loads %s; gpuwmctl jobs %" PRIu64 " tells its progress\n", job, options->name,
	       job);
	return EXIT_DONE;
}

int command_load(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *devices[DEVICES_MAX];
	char *source;
	int code;

	if (!strchr(arguments->positional[1], '@'))
		return exit_with(EXIT_USAGE, "write MODEL@TAG", "'%s' has no tag", arguments->positional[1]);
	if ((arguments->given & OPTION_SWAP) && arguments->alias)
		return exit_with(EXIT_USAGE, "--swap is --alias current",
				 "--swap and --alias exclude each other");
	for (size_t i = 0; i < arguments->device_count; i++) {
		code = device_resolve(client, arguments->devices[i], &devices[i]);
		if (code != EXIT_DONE)
			return code;
	}
	source = source_absolute(arguments->positional[0]);
	if (!source)
		return exit_with(EXIT_FAILED, NULL,
				 "the working directory is not known: write an absolute path");
	options.source = source;
	options.name = arguments->positional[1];
	options.devices = arguments->device_count ? devices : NULL;
	options.device_count = arguments->device_count;
	options.alias = arguments->given & OPTION_SWAP ? "current" : arguments->alias;
	code = arguments->given & OPTION_WAIT ? load_watched(client, arguments, &options)
					      : load_unwatched(client, arguments, &options);
	free(source);
	return code;
}
