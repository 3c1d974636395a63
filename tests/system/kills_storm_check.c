/* What must hold in the storm of kills: what was acknowledged is there, and in the end nothing is. */
#include "described.h"
#include "kills_storm.h"

#include "tests/support/any/own_folder.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#define ID_DIGITS 32
/* A take looks for its node for 90 s (PEER_PATIENCE_MS). */
#define JOBS_MS 120000
#define SETTLE_MS 60000 /* jobs that go on, versions that come back, on a busy machine */

/* ---- anchors ---------------------------------------------------------------------------- */

static const char *anchor_ref(uint32_t seed)
{
	static char text[24];

	snprintf(text, sizeof text, "%s@v1", kills_anchor(seed));
	return text;
}

void kills_anchors_load(struct kills_storm *s)
{
	for (uint32_t seed = 1; seed <= KILLS_SEEDS; seed++)
		load_version(s->storm.d, kills_checkpoint(s->world, seed), anchor_ref(seed));
	cr_assert(EVENTUALLY(SETTLE_MS, !tiers_pending(s->storm.d)), "the anchors are not described");
}

static void anchors_come_back(struct kills_storm *s)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping;

	options.wait_ms = SETTLE_MS;
	for (uint32_t seed = 1; seed <= KILLS_SEEDS; seed++) {
		OK(gpuwm_attach(s->storm.client, anchor_ref(seed), &options, &mapping));
		cr_assert(mapping_holds(mapping, seed), "%s has other bytes than it had", anchor_ref(seed));
		gpuwm_detach(mapping);
	}
}

/* ---- looking ----------------------------------------------------------------------- */

void kills_note_lasting(struct kills_storm *s)
{
	bool ended[KILLS_ACTORS][KILLS_VERSIONS];

	for (unsigned i = 0; i < KILLS_ACTORS * KILLS_VERSIONS; i++) {
		const unsigned actor = i / KILLS_VERSIONS, version = i % KILLS_VERSIONS;
		const uint32_t state = atomic_load(&s->world->versions[actor][version].state);
		json_t *entry = version_entry(s->storm.d, kills_model(actor, version), "v1");

		s->described[actor][version] |= entry && json_is_true(json_object_get(entry, "described"));
		ended[actor][version] = state == KILLS_RETIRED && !entry;
		json_decref(entry);
	}
	for (unsigned i = 0; !tiers_pending(s->storm.d) && i < KILLS_ACTORS * KILLS_VERSIONS; i++)
		s->ended[i / KILLS_VERSIONS][i % KILLS_VERSIONS] |=
			ended[i / KILLS_VERSIONS][i % KILLS_VERSIONS];
}

/* "": it is not there. Valid until the next call. */
static const char *state_of(struct kills_storm *s, unsigned actor, unsigned version)
{
	static char text[32];
	json_t *entry = version_entry(s->storm.d, kills_model(actor, version), "v1");

	snprintf(text, sizeof text, "%s", entry ? json_string_value(json_object_get(entry, "state")) : "");
	json_decref(entry);
	return text;
}

static bool is_idle(struct kills_storm *s)
{
	return status_of(s->storm.d, "jobs_running") == 0 && status_of(s->storm.d, "jobs_queued") == 0;
}

/* A keeper's death takes the memory of what was made before it. */
static bool may_be_lost(const struct kills_storm *s, const struct kills_thing *thing)
{
	return thing->era < atomic_load(&s->world->era);
}

static void is_there(const struct kills_storm *s, struct kills_thing *thing)
{
	thing->era = atomic_load(&s->world->era);
	atomic_store(&thing->state, KILLS_THERE);
}

/* ---- versions ----------------------------------------------------------------------------- */

static void check_version(struct kills_storm *s, unsigned actor, unsigned version)
{
	struct kills_thing *thing = &s->world->versions[actor][version];
	const char *model = kills_model(actor, version);
	bool *described = &s->described[actor][version];
	char ref[40];

	snprintf(ref, sizeof ref, "%s@v1", model);
	switch (atomic_load(&thing->state)) {
	case KILLS_GONE:
		cr_assert_str_empty(state_of(s, actor, version), "%s is there, and nobody made it", ref);
		return;
	case KILLS_RETIRED:
		/* The end is in the state at once, and in the folder of descriptions a moment later. */
		if (may_be_lost(s, thing) && !s->ended[actor][version] &&
		    strcmp(state_of(s, actor, version), "ready") == 0) {
			is_there(s, thing);
			return;
		}
		cr_assert(EVENTUALLY(SETTLE_MS, !*state_of(s, actor, version)), "%s is retired, and is %s", ref,
			  state_of(s, actor, version));
		break;
	case KILLS_THERE:
		if (strcmp(state_of(s, actor, version), "ready") == 0) {
			is_there(s, thing);
			return;
		}
		cr_assert(!*state_of(s, actor, version), "%s is %s", ref, state_of(s, actor, version));
		cr_assert(may_be_lost(s, thing) && !*described, "%s is lost", ref);
		break;
	default:
		if (strcmp(state_of(s, actor, version), "failed") == 0)
			OK(gpuwm_remove(s->storm.d->admin, ref));
		cr_assert(EVENTUALLY(SETTLE_MS, !*state_of(s, actor, version) ||
							strcmp(state_of(s, actor, version), "ready") == 0),
			  "%s is %s", ref, state_of(s, actor, version));
		if (*state_of(s, actor, version)) {
			is_there(s, thing);
			return;
		}
		break;
	}
	*described = s->ended[actor][version] = false;
	atomic_store(&thing->state, KILLS_GONE);
}

/* ---- regions -------------------------------------------------------------------------------- */

static void check_region(struct kills_storm *s, unsigned actor, unsigned region)
{
	struct kills_thing *thing = &s->world->regions[actor][region];
	const char *name = kills_region(actor, region);
	json_t *entry = region_entry(s->storm.d, name);
	const bool there = entry;
	const uint32_t state = atomic_load(&thing->state);

	json_decref(entry);
	if (state == KILLS_THERE && there) {
		is_there(s, thing);
		return;
	}
	cr_assert(state != KILLS_THERE || may_be_lost(s, thing), "the region %s is lost", name);
	cr_assert(state != KILLS_GONE || !there, "the region %s is there, and nobody made it", name);
	/* Nobody knows whether it was filled. */
	if (state == KILLS_DOUBT && there)
		OK(gpuwm_region_remove(s->storm.d->admin, name));
	cr_assert(
		EVENTUALLY(SETTLE_MS, !(entry = region_entry(s->storm.d, name)) || (json_decref(entry), false)),
		"the region %s is left", name);
	atomic_store(&thing->state, KILLS_GONE);
}

/* ---- files ------------------------------------------------------------------------------------ */

static bool is_other(const char *name)
{
	return strcmp(name, "model.safetensors") != 0;
}

/* A version's file, or one that was being written; the file of the names stays. */
static bool is_of_description(const char *name)
{
	return strspn(name, "0123456789abcdef") == ID_DIGITS || strstr(name, ".tmp");
}

static bool is_of_keeper(const char *name)
{
	return strncmp(name, "gpuwm-keeper-", strlen("gpuwm-keeper-")) == 0;
}

/* How many such names the folder has. */
static unsigned left_in(const char *path, bool (*counts)(const char *name))
{
	DIR *folder = opendir(path);
	unsigned count = 0;

	for (struct dirent *entry; folder && (entry = readdir(folder));)
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
			 counts(entry->d_name);
	if (folder)
		closedir(folder);
	return count;
}

/* What a killed process leaves goes with the next save into the folder. */
static void save_again(struct kills_storm *s, unsigned actor, uint32_t seed)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);
	const struct gpuwm_mapping *of;
	struct gpuwm_mapping *mapping;
	const char *folder = kills_save(s->world, actor, seed);

	options.overwrite = true;
	OK(gpuwm_attach(s->storm.client, "last@v1", NULL, &mapping));
	of = mapping;
	OK(gpuwm_save(&of, 1, folder, &options));
	OK(gpuwm_detach(mapping));
	cr_assert_eq(left_in(folder, is_other), 0, "files are left in %s", folder);
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* Everything that is there is right to the last byte. */
static void check_bytes(struct kills_storm *s, unsigned actor, unsigned version)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const struct kills_thing *thing = &s->world->versions[actor][version];
	struct gpuwm_mapping *mapping;
	char ref[40];

	snprintf(ref, sizeof ref, "%s@v1", kills_model(actor, version));
	options.wait_ms = SETTLE_MS;
	OK(gpuwm_attach(s->storm.client, ref, &options, &mapping));
	OK(gpuwm_tensors_verify(mapping, NULL, 0));
	cr_assert(mapping_holds(mapping, thing->seed), "%s has other bytes than it had", ref);
	OK(gpuwm_detach(mapping));
}

/* gpuwm-peer holds what it served for some seconds, so it dies; but after the jobs, of which a take would look for it for 90 s. */
void kills_check(struct storm *storm)
{
	struct kills_storm *s = (struct kills_storm *)storm;

	kills_serves(s);
	cr_assert(EVENTUALLY(JOBS_MS, is_idle(s)), "jobs do not end");
	kills_peer_kill(s);
	for (unsigned i = 0; i < KILLS_ACTORS; i++) {
		for (unsigned k = 0; k < KILLS_VERSIONS; k++)
			check_version(s, i, k);
		for (unsigned k = 0; k < KILLS_REGIONS; k++)
			check_region(s, i, k);
	}
	atomic_store(&s->world->settled, atomic_load(&s->world->era));
	kills_peer_start(s);
}

static void each_version(struct kills_storm *s,
			 void (*act)(struct kills_storm *s, unsigned actor, unsigned version))
{
	for (unsigned i = 0; i < KILLS_ACTORS * KILLS_VERSIONS; i++) {
		if (atomic_load(&s->world->versions[i / KILLS_VERSIONS][i % KILLS_VERSIONS].state) ==
		    KILLS_THERE)
			act(s, i / KILLS_VERSIONS, i % KILLS_VERSIONS);
	}
}

static void give_up_version(struct kills_storm *s, unsigned actor, unsigned version)
{
	version_drop(s->storm.d, kills_model(actor, version), "v1");
}

static void give_up_files(struct kills_storm *s)
{
	load_version(s->storm.d, kills_checkpoint(s->world, 1), "last@v1");
	for (unsigned i = 0; i < KILLS_ACTORS * KILLS_SEEDS; i++)
		save_again(s, i / KILLS_SEEDS, 1 + i % KILLS_SEEDS);
	version_drop(s->storm.d, "last", "v1");
}

void kills_end(struct kills_storm *s)
{
	struct gpuwmd *d = s->storm.d;
	char described[128];

	anchors_come_back(s);
	each_version(s, check_bytes);
	kills_peer_kill(s);
	for (unsigned i = 0; i < KILLS_ACTORS * KILLS_REGIONS; i++) {
		if (atomic_load(&s->world->regions[i / KILLS_REGIONS][i % KILLS_REGIONS].state) == KILLS_THERE)
			OK(gpuwm_region_remove(s->storm.client,
					       kills_region(i / KILLS_REGIONS, i % KILLS_REGIONS)));
	}
	each_version(s, give_up_version);
	for (uint32_t seed = 1; seed <= KILLS_SEEDS; seed++)
		version_drop(d, kills_anchor(seed), "v1");
	give_up_files(s);
	kills_serves(s); /* a gpuwmd that the last strike told to end may have served until now */
	gpuwm_close(s->storm.client);
	s->storm.client = NULL;
	cr_assert_eq(status_of(d, "versions"), 0);
	cr_assert_eq(regions_count(d), 0);
	cr_assert(EVENTUALLY(SETTLE_MS, !tiers_pending(d) && tiers_number(d, "described") == 0));
	snprintf(described, sizeof described, "%s/described", own_folder());
	cr_assert_eq(left_in(described, is_of_description), 0, "descriptions are left in %s", described);
	/* The folder of one that was killed as it took over is there until the next one begins. */
	cr_assert_leq(left_in(d->dir, is_of_keeper), 2, "folders of dead keepers are left in %s", d->dir);
	cr_assert(EVENTUALLY(SETTLE_MS, kept_memory(d) == 0), "%ju bytes are left", kept_memory(d));
	cr_assert(EVENTUALLY(SETTLE_MS, storm_loaders() == 1), "%u loaders are left", storm_loaders() - 1);
}
