#include "described.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MORE_FLAGS 12

static const char *more[MORE_FLAGS + 1];

void described_spawn(struct gpuwmd *d)
{
	char folder[160];
	const char *flags[MORE_FLAGS + 4] = {"--set", folder};

	snprintf(folder, sizeof folder, "tiers.folder=%s/described", d->dir);
	memcpy(flags + 2, more, sizeof more);
	d->pid = gpuwmd_spawn(d, flags);
}

struct gpuwmd *described_start(const char *flag, ...)
{
	struct gpuwmd *d = gpuwmd_new();
	va_list list;

	memset(more, 0, sizeof more);
	more[0] = flag;
	va_start(list, flag);
	for (int i = 1; flag && i < MORE_FLAGS && (more[i] = va_arg(list, const char *)); i++)
		;
	va_end(list);
	described_spawn(d);
	gpuwmd_wait(d);
	return d;
}

void described_end(struct gpuwmd *d, int signal_number)
{
	int status;

	gpuwm_close(d->admin);
	d->admin = NULL;
	cr_assert(kill(d->pid, signal_number) == 0 && waitpid(d->pid, &status, 0) == d->pid);
	d->pid = 0;
	if (signal_number == SIGTERM)
		cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x", (unsigned)status);
}

void described_reboot(struct gpuwmd *d, int signal_number)
{
	described_end(d, signal_number);
	described_spawn(d);
	gpuwmd_wait(d);
}

void described_stop(struct gpuwmd *d)
{
	described_end(d, SIGTERM);
	d->stopped = true;
}

const char *described_path(const struct gpuwmd *d, const char *name)
{
	static char path[256];

	snprintf(path, sizeof path, "%s/described/%s", d->dir, name);
	return path;
}

const char *described_file(struct gpuwmd *d, const char *tag)
{
	json_t *entry = version_entry(d, "m", tag);
	char name[64];

	cr_assert(entry);
	snprintf(name, sizeof name, "%s.version", json_string_value(json_object_get(entry, "version")));
	json_decref(entry);
	return described_path(d, name);
}

bool is_described(struct gpuwmd *d, const char *tag)
{
	json_t *entry = version_entry(d, "m", tag);
	bool is = entry && json_is_true(json_object_get(entry, "described"));

	json_decref(entry);
	return is;
}

static json_t *tiers_of(struct gpuwmd *d)
{
	json_t *status = query(d->admin, "status", NULL),
	       *tiers = json_incref(json_object_get(status, "tiers"));

	json_decref(status);
	return tiers;
}

uint64_t tiers_number(struct gpuwmd *d, const char *key)
{
	json_t *tiers = tiers_of(d);
	uint64_t number = (uint64_t)json_integer_value(json_object_get(tiers, key));

	json_decref(tiers);
	return number;
}

bool tiers_pending(struct gpuwmd *d)
{
	json_t *tiers = tiers_of(d);
	bool pending = json_is_true(json_object_get(tiers, "pending"));

	json_decref(tiers);
	return pending;
}

bool tiers_error(struct gpuwmd *d, const char *words)
{
	json_t *tiers = tiers_of(d);
	const char *message = json_string_value(json_object_get(json_object_get(tiers, "error"), "message"));
	bool says = words ? message && strstr(message, words) : !message;

	json_decref(tiers);
	return says;
}

void attach_reads(const char *ref, uint64_t seed)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;

	options.wait_ms = SOON_MS;
	OK(gpuwm_attach(client, ref, &options, &mapping));
	cr_assert(mapping_holds(mapping, seed));
	gpuwm_detach(mapping);
	gpuwm_close(client);
}

void describe_small(struct gpuwmd *d, unsigned count)
{
	load_small(d, count);
	cr_assert(EVENTUALLY(SOON_MS, tiers_number(d, "described") == count));
}
