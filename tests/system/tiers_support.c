#include "tiers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is(const json_t *version, const char *key, const char *text, const char *otherwise)
{
	const char *has = json_string_value(json_object_get(version, key));

	return strcmp(has ? has : otherwise, text) == 0;
}

struct gpuwmd *tiers_begin(void)
{
	struct gpuwmd *d = gpuwmd_start(NULL);

	load_version(d, checkpoint_write(d, "v1", LARGE(1)), "m@v1");
	return d;
}

void tiers_end(struct gpuwmd *d)
{
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

bool lies_on(struct gpuwmd *d, const char *tag, const char *tier)
{
	json_t *version = version_entry(d, "m", tag);
	bool lies = version && is(version, "tier", tier, "device") && is(version, "moving", "", "");

	json_decref(version);
	return lies;
}

static int wait_all(struct gpuwmd *d, const uint64_t *jobs, size_t count)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = gpuwm_job_wait(d->admin, jobs[i], 30000);
	return r;
}

void demote(struct gpuwmd *d, const char *ref, const char *tier)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;

	OK(gpuwm_demote(d->admin, ref, tier, jobs, &count));
	OK(wait_all(d, jobs, count));
}

int gpuwm_promote_wait(struct gpuwmd *d, const char *ref)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count;
	int r = gpuwm_promote(d->admin, ref, jobs, &count);

	return r < 0 ? r : wait_all(d, jobs, count);
}

size_t log_lines(const struct gpuwmd *d, const char *words)
{
	FILE *file = fopen(d->log, "re");
	size_t count = 0;
	char line[4096];

	while (file && fgets(line, sizeof line, file))
		count += strstr(line, words) != NULL;
	if (file)
		fclose(file);
	return count;
}

int waiter_hold(int argc, char **argv)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client;
	struct gpuwm_mapping *mapping;

	CHILD_ASSERT(argc == 2);
	child_keeps_context();
	options.wait_ms = 30000;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(gpuwm_attach(client, argv[0], &options, &mapping) == 0);
	child_say('a');
	CHILD_ASSERT(child_hear() == 'd');
	CHILD_ASSERT(mapping_holds(mapping, strtoull(argv[1], NULL, 10)));
	CHILD_ASSERT(gpuwm_detach(mapping) == 0);
	gpuwm_close(client);
	return 0;
}

void worker_waits(struct gpuwmd *d, const char *ref, uint64_t seed)
{
	struct process p;
	char text[24];

	(void)d;
	snprintf(text, sizeof text, "%ju", (uintmax_t)seed);
	p = process_start(waiter_hold, ref, text, NULL);
	process_expect(&p, 'a');
	process_tell(&p, 'd');
	process_finish(&p);
}
