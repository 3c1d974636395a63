#include "operate.h"

#include "../bench.h"

#include <inttypes.h>
#include <stdbool.h>

#define JOB_WAIT_MS 600000
#define STANDBY_WAIT_US 30e6
#define CHECKERS_WAIT_US 60e6 /* by default they stay for 5 s */

static struct gpuwm_client *connect_as(const char *socket, unsigned flags)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_client *client;

	options.socket = socket;
	options.flags = flags;
	OK(gpuwm_connect(&options, &client));
	return client;
}

struct gpuwm_client *operator_connect(const char *socket)
{
	return connect_as(socket, GPUWM_CONNECT_ADMIN);
}

struct gpuwm_client *worker_connect(const char *socket)
{
	return connect_as(socket, 0);
}

const char *device_id(struct gpuwm_client *client, const char *name)
{
	const struct gpuwm_device *devices;
	size_t count = gpuwm_devices(client, &devices);
	long wanted = strncmp(name, "cuda:", 5) == 0 ? strtol(name + 5, NULL, 10) : -1;

	for (size_t i = 0; i < count; i++) {
		if (strcmp(devices[i].id, name) == 0 || (devices[i].is_cuda && wanted-- == 0))
			return devices[i].id;
	}
	DIE("gpuwmd has no device %s", name);
}

static json_t *query(struct gpuwm_client *client, const char *method, const char *filter)
{
	json_error_t why;
	json_t *answer;
	char *text;

	OK(gpuwm_query(client, method, filter, &text));
	answer = json_loads(text, 0, &why);
	if (!answer)
		DIE("%s: %s", method, why.text);
	free(text);
	return answer;
}

pid_t gpuwmd_pid(struct gpuwm_client *client)
{
	json_t *status = query(client, "status", NULL);
	pid_t pid = (pid_t)json_integer_value(json_object_get(status, "pid"));

	json_decref(status);
	return pid;
}

bool standby_is_there(struct gpuwm_client *client)
{
	json_t *status = query(client, "status", NULL);
	bool there = json_is_true(json_object_get(status, "standby"));

	json_decref(status);
	return there;
}

void standby_wait(struct gpuwm_client *client)
{
	double begin = now_us();

	while (!standby_is_there(client)) {
		if (now_us() - begin > STANDBY_WAIT_US)
			DIE("gpuwmd has no standby loader");
		usleep(5000);
	}
}

static bool context_is_kept(struct gpuwm_client *client, const char *device)
{
	json_t *status = query(client, "status", NULL), *loader, *context;
	bool kept = false;
	size_t i, j;

	json_array_foreach(json_object_get(status, "keeping"), i, loader) {
		json_array_foreach(json_object_get(loader, "contexts"), j, context) {
			const char *on = json_string_value(json_object_get(context, "device"));

			kept |= json_is_true(json_object_get(loader, "ready")) && strcmp(on, device) == 0 &&
				!json_is_true(json_object_get(loader, "checks"));
		}
	}
	json_decref(status);
	return kept;
}

void kept_wait(struct gpuwm_client *client, const char *device)
{
	double begin = now_us();

	while (!context_is_kept(client, device)) {
		if (now_us() - begin > STANDBY_WAIT_US)
			DIE("no loader keeps a context on %s: gpuwmd needs keep_context in [loader]", device);
		usleep(5000);
	}
}

static bool checker_stays(struct gpuwm_client *client)
{
	json_t *status = query(client, "status", NULL), *loader;
	bool stays = false;
	size_t i;

	json_array_foreach(json_object_get(status, "keeping"), i, loader)
		stays |= json_is_true(json_object_get(loader, "checks"));
	json_decref(status);
	return stays;
}

void checkers_wait(struct gpuwm_client *client)
{
	double begin = now_us();

	while (checker_stays(client)) {
		if (now_us() - begin > CHECKERS_WAIT_US)
			DIE("a checker stays for more than %.0f s: set keep_checker in [loader] to less",
			    CHECKERS_WAIT_US / 1e6);
		usleep(20000);
	}
}

uint64_t load_begin(struct gpuwm_client *client, const char *source, const char *name,
		    const char *const *devices, size_t count)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;

	options.source = source;
	options.name = name;
	options.devices = devices;
	options.device_count = count;
	OK(gpuwm_load(client, &options, &job));
	return job;
}

static void add_text(char *text, size_t bytes, const char *what)
{
	size_t used = strlen(text);

	snprintf(text + used, bytes - used, "%s", what);
}

static void read_job(const json_t *job, struct job_times *times)
{
	json_t *phases = json_object_get(job, "phases"), *item;
	char line[1100];
	size_t i;

	if (!json_is_array(phases))
		DIE("this gpuwmd does not tell the phases of a job");
	times->bytes = (uint64_t)json_integer_value(json_object_get(job, "total"));
	json_array_foreach(phases, i, item) {
		const char *phase = json_string_value(json_object_get(item, "phase"));
		json_int_t ms = json_integer_value(json_object_get(item, "ms"));

		if (strcmp(phase, "copying") == 0)
			times->copy_ms += (double)ms;
		snprintf(line, sizeof line, "%s%s %" JSON_INTEGER_FORMAT, i ? ", " : "", phase, ms);
		add_text(times->phases, sizeof times->phases, line);
	}
	json_array_foreach(json_object_get(job, "notes"), i, item) {
		snprintf(line, sizeof line, "    note: %s\n", json_string_value(item));
		add_text(times->notes, sizeof times->notes, line);
	}
}

struct job_times load_end(struct gpuwm_client *client, uint64_t number, double begin_us)
{
	struct job_times times = {0};
	char filter[24];
	json_t *jobs;

	OK(gpuwm_job_wait(client, number, JOB_WAIT_MS));
	times.ready_ms = (now_us() - begin_us) / 1000;
	snprintf(filter, sizeof filter, "%" PRIu64, number);
	jobs = query(client, "jobs", filter);
	read_job(json_array_get(json_object_get(jobs, "jobs"), 0), &times);
	json_decref(jobs);
	return times;
}

struct job_times load_and_wait(struct gpuwm_client *client, const char *source, const char *name,
			       const char *device)
{
	double begin = now_us();

	return load_end(client, load_begin(client, source, name, &device, 1), begin);
}

/* The caller's, as long as the answer. */
static const json_t *youngest_of(const json_t *answer, const char *kind)
{
	const json_t *job, *youngest = NULL;
	size_t i;

	json_array_foreach(json_object_get(answer, "jobs"), i, job) {
		if (strcmp(json_string_value(json_object_get(job, "kind")), kind) == 0 &&
		    json_integer_value(json_object_get(job, "job")) >
			    json_integer_value(json_object_get(youngest, "job")))
			youngest = job;
	}
	return youngest;
}

struct job_times job_last(struct gpuwm_client *client, const char *kind)
{
	json_t *answer = query(client, "jobs", NULL);
	struct job_times times = {0};

	read_job(youngest_of(answer, kind), &times);
	json_decref(answer);
	return times;
}

void job_notes(struct gpuwm_client *client, const char *kind, char *ret_text, size_t bytes)
{
	json_t *answer = query(client, "jobs", NULL), *note;
	char line[1100];
	size_t i;

	ret_text[0] = 0;
	json_array_foreach(json_object_get(youngest_of(answer, kind), "notes"), i, note) {
		snprintf(line, sizeof line, "    note: %s\n", json_string_value(note));
		add_text(ret_text, bytes, line);
	}
	json_decref(answer);
}

struct scrub_state scrub_of(struct gpuwm_client *client)
{
	json_t *status = query(client, "status", NULL), *scrub = json_object_get(status, "scrub");
	struct scrub_state state = {
		.passes = (uint64_t)json_integer_value(json_object_get(scrub, "passes")),
		.running = json_is_true(json_object_get(scrub, "running")),
	};

	if (!scrub)
		DIE("this gpuwmd tells nothing of a scrub");
	json_decref(status);
	return state;
}

void retire(struct gpuwm_client *client, const char *ref)
{
	struct gpuwm_swap_options swap = GPUWM_OPTIONS(struct gpuwm_swap_options);
	char model[129];

	snprintf(model, sizeof model, "%.*s", (int)strcspn(ref, "@"), ref);
	swap.model = model;
	/* The first version of a model has its alias; another one has not. */
	if (gpuwm_swap(client, &swap, NULL) < 0 && gpuwm_error()->code != -ENOENT)
		DIE("swap: %s", gpuwm_error()->message);
	OK(gpuwm_retire(client, ref, CALL_TIMEOUT_MS));
}
