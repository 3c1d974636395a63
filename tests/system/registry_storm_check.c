/* What must hold in the storm, and after each restart. */
#include "registry_storm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct known *known_find(struct registry_storm *s, const char *id)
{
	for (size_t i = s->known_count; i-- > 0;) {
		if (strcmp(s->known[i].id, id) == 0)
			return &s->known[i];
	}
	return NULL;
}

static bool is_held(const char *id, void *data)
{
	struct registry_storm *s = data;

	for (int i = 0; i <= WORKERS; i++) {
		if (s->hands[i].state == HAND_HOLDING && strcmp(s->hands[i].version, id) == 0)
			return true;
	}
	return false;
}

static void note_version(struct registry_storm *s, const struct registry_version *version)
{
	struct known *known = version->state == REGISTRY_GONE ? NULL : known_find(s, version->id);

	if (version->state == REGISTRY_GONE)
		return;
	if (!known) {
		s->known = reallocarray(s->known, s->known_count + 1, sizeof *s->known);
		known = &s->known[s->known_count++];
		*known = (struct known){.seed = version->seed};
		strcpy(known->id, version->id);
	}
	cr_assert(!known->gone, "%s was freed, and is there again", version->id);
	cr_assert_eq(known->seed, version->seed, "%s has other bytes than it had", version->id);
}

static void note_versions(struct registry_storm *s)
{
	for (size_t i = 0; i < s->known_count; i++) {
		bool there = false;

		for (int j = 0; j < MODELS * TAGS; j++) {
			const struct registry_version *v = &s->admins[j / TAGS].model.versions[j % TAGS];

			there |= v->state != REGISTRY_GONE && strcmp(v->id, s->known[i].id) == 0;
		}
		s->known[i].gone |= !there;
	}
	for (int j = 0; j < MODELS * TAGS; j++)
		note_version(s, &s->admins[j / TAGS].model.versions[j % TAGS]);
}

void check_registry(struct registry_storm *s)
{
	json_t *list = query(s->storm.d->admin, "list", NULL);
	struct registry_patience patience = {
		.over = s->freed_before || clock_ms() >= s->grace_until, .held = is_held, .data = s};

	for (int i = 0; i < MODELS; i++)
		admin_check(&s->admins[i], list, &s->contents, &patience);
	note_versions(s);
	json_decref(list);
}

/* Each worker that holds a version has one lease of it, and nobody has another. */
static bool leases_are_right(struct registry_storm *s)
{
	json_t *answer = query(s->storm.d->admin, "clients", NULL), *client;
	size_t i, held = 0, right = 0, leases = 0;

	for (int j = 0; j <= WORKERS; j++)
		held += s->hands[j].state == HAND_HOLDING;
	json_array_foreach(json_object_get(answer, "clients"), i, client) {
		json_t *of = json_object_get(client, "leases"), *first = json_array_get(of, 0);
		pid_t pid = (pid_t)json_integer_value(json_object_get(client, "pid"));

		leases += json_array_size(of);
		for (int j = 0; first && j <= WORKERS; j++)
			right += s->hands[j].process.pid == pid && s->hands[j].state == HAND_HOLDING &&
				 strcmp(s->hands[j].version,
					json_string_value(json_object_get(first, "version"))) == 0;
	}
	json_decref(answer);
	return leases == held && right == held;
}

static uint64_t bytes_listed(json_t *list, bool *ret_open)
{
	json_t *version;
	uint64_t bytes = 0;
	size_t i;

	*ret_open = false;
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		const char *state = json_string_value(json_object_get(version, "state"));

		cr_assert(!json_object_get(version, "tainted"));
		if (strcmp(state, "ready") == 0 || strcmp(state, "retiring") == 0)
			bytes += (uint64_t)json_integer_value(json_object_get(version, "bytes"));
		else
			*ret_open = true;
	}
	return bytes;
}

/* What is granted of the device is what versions have, unless a publish is open. */
static bool budget_is_right(struct registry_storm *s)
{
	json_t *list = query(s->storm.d->admin, "list", NULL),
	       *status = query(s->storm.d->admin, "status", NULL), *device;
	uint64_t bytes, used = 0;
	bool open, publishing = json_integer_value(json_object_get(status, "publishes")) > 0;
	size_t i;

	bytes = bytes_listed(list, &open);
	json_array_foreach(json_object_get(status, "devices"), i, device) {
		if (strcmp(json_string_value(json_object_get(device, "device")), s->storm.d->device) == 0)
			used = (uint64_t)(json_integer_value(json_object_get(device, "used")) -
					  json_integer_value(json_object_get(device, "contexts")));
	}
	json_decref(list);
	json_decref(status);
	return open || publishing || used == bytes;
}

const struct registry_version *sure_version(struct registry_storm *s)
{
	unsigned first = (unsigned)dice_throw(&s->guide, MODELS * TAGS);

	for (unsigned i = 0; i < MODELS * TAGS; i++) {
		unsigned at = (first + i) % (MODELS * TAGS);
		struct admin *o = &s->admins[at / TAGS];
		const struct registry_version *v = &o->model.versions[at % TAGS];

		if (v->state == REGISTRY_READY && v->id[0] &&
		    (o->state == OP_NONE || o->changed.versions[at % TAGS].state == REGISTRY_READY))
			return v;
	}
	return NULL;
}

/* ---- after a restart -------------------------------------------------- */

static void check_status(struct registry_storm *s, unsigned starts)
{
	json_t *status = query(s->storm.d->admin, "status", NULL);
	uint64_t epoch = (uint64_t)json_integer_value(json_object_get(status, "epoch"));
	const char *ledger = json_string_value(json_object_get(status, "ledger"));

	cr_assert(epoch > s->epoch && epoch <= s->epoch + starts, "epoch %ju after %ju and %u starts", epoch,
		  s->epoch, starts);
	cr_assert_str_eq(ledger, s->ledger, "the ledger changed");
	cr_assert_eq(json_integer_value(json_object_get(status, "lost")), 0, "a version was lost");
	cr_assert(!json_object_get(status, "locked") && json_is_true(json_object_get(status, "kept")));
	s->epoch = epoch;
	/* Where nothing was left there is no grace time. */
	if (json_integer_value(json_object_get(status, "adopted")) == 0)
		s->grace_until = 0;
	json_decref(status);
}

void check_restart(struct registry_storm *s, unsigned starts, int64_t killed_ms)
{
	const struct registry_version *version;
	int64_t took;

	keeper_log_read(&s->log);
	cr_assert_eq(s->log.starts, s->starts, "gpuwmd was started %u times instead of %u", s->log.starts,
		     s->starts);
	check_status(s, starts);
	check_registry(s);
	s->freed_before = false;
	hands_settle(s);
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, leases_are_right(s)), "leases are lost, or left over");
	took = clock_ms() - killed_ms;
	if (took > s->leases_back_ms)
		s->leases_back_ms = took;
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, budget_is_right(s)), "the budget is not what versions have");
	version = sure_version(s);
	if (version)
		check_bytes(s, version);
}

static bool all_is_freed(struct registry_storm *s)
{
	json_t *list = query(s->storm.d->admin, "list", NULL), *version;
	bool freed = true;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		freed &= strcmp(json_string_value(json_object_get(version, "state")), "retiring") != 0 ||
			 json_integer_value(json_object_get(version, "leases")) > 0 ||
			 json_array_size(json_object_get(version, "pins")) > 0;
	}
	json_decref(list);
	return freed;
}

void check_freed(struct registry_storm *s)
{
	cr_assert(EVENTUALLY(STORM_SETTLE_MS, all_is_freed(s)), "what nobody holds is not freed");
	check_registry(s);
}

void learn_contents(struct registry_storm *s)
{
	char name[REF_TEXT], file[32];

	for (unsigned seed = 1; seed <= SEEDS; seed++) {
		json_t *entry;

		snprintf(file, sizeof file, "s%u", seed);
		snprintf(name, sizeof name, "learn@s%u", seed);
		load_version(s->storm.d, checkpoint_write(s->storm.d, file, SMALL(seed)), name);
		entry = version_entry(s->storm.d, "learn", file);
		snprintf(s->contents.of[seed], ID_TEXT, "%s",
			 json_string_value(json_object_get(entry, "content")));
		json_decref(entry);
		version_drop(s->storm.d, "learn", file);
	}
}
