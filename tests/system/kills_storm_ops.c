/* What an actor does in the storm of kills. */
#include "kills_storm.h"

#include <gpuwm/scratch.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#define JOB_MS 20000
#define ATTACH_MS 10000

/* What calls say when gpuwmd, its keeper, a loader or a gpuwm-peer dies in the middle. None of them says that something is lost. */
#define DEATHS                                                                                                 \
	STORM_AWAY, EAGAIN, ECANCELED, ECONNABORTED, ECONNRESET, EIO, ENOTCONN, EPIPE, ENOSPC, ESTALE, ESHUTDOWN

struct actor {
	struct storm_actor actor;
	struct kills_world *world;
	struct gpuwm_client *admin;
};

static struct actor *actor_of(struct storm_actor *a)
{
	return (struct actor *)a;
}

/* ---- names ------------------------------------------------------------------- */

const char *kills_model(unsigned actor, unsigned version)
{
	static char text[32];

	snprintf(text, sizeof text, "a%uv%u", actor, version);
	return text;
}

const char *kills_region(unsigned actor, unsigned region)
{
	static char text[32];

	snprintf(text, sizeof text, "a%ur%u", actor, region);
	return text;
}

const char *kills_save(const struct kills_world *world, unsigned actor, uint32_t seed)
{
	static char text[160];

	snprintf(text, sizeof text, "%s/a%us%u", world->root, actor, seed);
	return text;
}

const char *kills_checkpoint(const struct kills_world *world, uint32_t seed)
{
	static char text[160];

	snprintf(text, sizeof text, "%s/s%u.safetensors", world->root, seed);
	return text;
}

const char *kills_anchor(uint32_t seed)
{
	static char text[16];

	snprintf(text, sizeof text, "anchor%u", seed);
	return text;
}

void kills_fill(unsigned char bytes[KILLS_REGION_BYTES], uint32_t seed)
{
	content_fill(seed, "region", 0, bytes, KILLS_REGION_BYTES);
}

/* ---- what there is ------------------------------------------------------------- */

/* One of these in that state, at random; -1: none. */
static int choose(struct actor *a, const struct kills_thing *things, unsigned count, enum kills_state state)
{
	const unsigned first = (unsigned)dice_throw(&a->actor.dice, count);

	for (unsigned i = 0; i < count; i++) {
		if (atomic_load(&things[(first + i) % count].state) == state)
			return (int)((first + i) % count);
	}
	return -1;
}

/* A change is asked for. Whoever dies now leaves a doubt. */
static void doubt(struct actor *a, struct kills_thing *thing)
{
	thing->era = atomic_load(&a->world->era);
	atomic_store(&thing->state, KILLS_DOUBT);
}

/* The answer is there. What has failed may have happened all the same. */
static int answered(struct kills_thing *thing, int code, enum kills_state state)
{
	if (code >= 0)
		atomic_store(&thing->state, state);
	return code;
}

/* What was acknowledged may be missing only where a keeper died since the last check, which will find out. */
static int may_be_lost(struct actor *a, int code)
{
	if (code == -ENOENT || code == -EOWNERDEAD)
		CHILD_ASSERT(atomic_load(&a->world->era) != atomic_load(&a->world->settled));
	return code;
}

static const char *ref_of(unsigned actor, unsigned version)
{
	static char text[40];

	snprintf(text, sizeof text, "%s@v1", kills_model(actor, version));
	return text;
}

/* ---- versions ---------------------------------------------------------------------- */

static int load_from(struct actor *a, unsigned version, const char *source)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	const char *device = a->world->device;
	uint64_t job;
	int r;

	options.source = source;
	options.name = ref_of(a->actor.number, version);
	options.devices = &device;
	options.device_count = 1;
	r = gpuwm_load(a->admin, &options, &job);
	return r < 0 ? r : gpuwm_job_wait(a->admin, job, JOB_MS);
}

/* From the checkpoint, or from what a version of it was saved as. */
static int load(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	struct kills_thing *mine = a->world->versions[actor->number];
	const int version = choose(a, mine, KILLS_VERSIONS, KILLS_GONE);
	const int saved = choose(a, a->world->saves[actor->number], KILLS_SEEDS, KILLS_THERE);
	const bool from_save = saved >= 0 && dice_percent(&actor->dice, 50);

	if (version < 0)
		return -EBUSY;
	mine[version].seed =
		from_save ? (uint32_t)saved + 1 : 1 + (uint32_t)dice_throw(&actor->dice, KILLS_SEEDS);
	doubt(a, &mine[version]);
	return answered(&mine[version],
			MAY_REFUSE(load_from(a, (unsigned)version,
					     from_save ? kills_save(a->world, actor->number, mine[version].seed)
						       : kills_checkpoint(a->world, mine[version].seed)),
				   DEATHS, ENOENT),
			KILLS_THERE);
}

/* From gpuwm-peer, any actor's. The node may be gone, or the version there. */
static int take(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	const unsigned other = (unsigned)dice_throw(&actor->dice, KILLS_ACTORS);
	const int theirs = choose(a, a->world->versions[other], KILLS_VERSIONS, KILLS_THERE);
	struct kills_thing *mine = a->world->versions[actor->number];
	const int version = choose(a, mine, KILLS_VERSIONS, KILLS_GONE);
	char source[96];
	int r;

	if (version < 0 || theirs < 0)
		return -EBUSY;
	snprintf(source, sizeof source, "peer://127.0.0.1:%u/%s", a->world->port,
		 ref_of(other, (unsigned)theirs));
	mine[version].seed = a->world->versions[other][theirs].seed;
	doubt(a, &mine[version]);
	r = load_from(a, (unsigned)version, source);
	CHILD_ASSERT(r != -EBADMSG && r != -EINVAL && r != -EACCES);
	return answered(&mine[version], r, KILLS_THERE);
}

/* One of its own that is there, attached, with all its bytes. */
static int attach(struct actor *a, int *ret_version, struct gpuwm_mapping **ret_mapping)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const struct kills_thing *mine = a->world->versions[a->actor.number];
	int r;

	*ret_version = choose(a, mine, KILLS_VERSIONS, KILLS_THERE);
	if (*ret_version < 0)
		return -EBUSY;
	options.wait_ms = ATTACH_MS;
	r = MAY_REFUSE(gpuwm_attach(a->actor.client, ref_of(a->actor.number, (unsigned)*ret_version), &options,
				    ret_mapping),
		       DEATHS, ENOENT);
	if (r < 0)
		return may_be_lost(a, r);
	CHILD_ASSERT(mapping_holds(*ret_mapping, mine[*ret_version].seed));
	return 0;
}

static int look(struct storm_actor *actor)
{
	struct gpuwm_mapping *mapping;
	int version, r = attach(actor_of(actor), &version, &mapping);

	if (r < 0)
		return r;
	CHILD_ASSERT(gpuwm_tensors_verify(mapping, NULL, 0) == 0);
	pause_us(dice_throw(&actor->dice, 5000));
	gpuwm_detach(mapping); /* gpuwmd may have died */
	return 0;
}

static int save(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	const struct gpuwm_mapping *of;
	struct gpuwm_mapping *mapping;
	struct kills_thing *saved;
	int version, before, r = attach(a, &version, &mapping);
	uint32_t seed;

	if (r < 0)
		return r;
	of = mapping;
	seed = a->world->versions[actor->number][version].seed;
	saved = &a->world->saves[actor->number][seed - 1];
	before = (int)atomic_load(&saved->state);
	if (before != KILLS_THERE)
		doubt(a, saved);
	r = MAY_REFUSE(gpuwm_save(&of, 1, kills_save(a->world, actor->number, seed), NULL), EEXIST);
	/* A file of its name is complete, whoever was killed before it could say so. */
	CHILD_ASSERT(r == 0 || before != KILLS_GONE);
	atomic_store(&saved->state, KILLS_THERE);
	gpuwm_detach(mapping);
	return r;
}

static int move(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	struct kills_thing *mine = a->world->versions[actor->number];
	const int version = choose(a, mine, KILLS_VERSIONS, KILLS_THERE);
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count = 0;
	const char *ref, *tier;
	int r;

	if (version < 0)
		return -EBUSY;
	ref = ref_of(actor->number, (unsigned)version);
	tier = backend() == BACKEND_HOST || dice_percent(&actor->dice, 40) ? "files" : "host";
	r = dice_percent(&actor->dice, 40) ? gpuwm_promote(a->admin, ref, jobs, &count)
					   : gpuwm_demote(a->admin, ref, tier, jobs, &count);
	/* EINVAL: it lies lower. ENOTSUP: it is not described, so that files are no tier of it. */
	r = may_be_lost(a, MAY_REFUSE(r, DEATHS, ENOENT, EINVAL, ENOTSUP));
	for (size_t i = 0; r >= 0 && i < count && dice_percent(&actor->dice, 60); i++)
		r = gpuwm_job_wait(a->admin, jobs[i], JOB_MS);
	return r;
}

static int retire(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	struct gpuwm_swap_options current = GPUWM_OPTIONS(struct gpuwm_swap_options);
	struct kills_thing *mine = a->world->versions[actor->number];
	const int version = choose(a, mine, KILLS_VERSIONS, KILLS_THERE);
	int r;

	if (version < 0)
		return -EBUSY;
	doubt(a, &mine[version]);
	current.model = kills_model(actor->number, (unsigned)version);
	r = MAY_REFUSE(gpuwm_swap(a->admin, &current, NULL), DEATHS, ENOENT);
	if (r >= 0)
		r = may_be_lost(a,
				MAY_REFUSE(gpuwm_retire(a->admin, ref_of(actor->number, (unsigned)version), 0),
					   DEATHS, ENOENT));
	return answered(&mine[version], r, KILLS_RETIRED);
}

/* ---- regions ----------------------------------------------------------------------- */

static unsigned char filling[KILLS_REGION_BYTES];

static int region_make_one(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	struct gpuwm_region_options options = GPUWM_OPTIONS(struct gpuwm_region_options);
	struct kills_thing *mine = a->world->regions[actor->number];
	const int number = choose(a, mine, KILLS_REGIONS, KILLS_GONE);
	struct gpuwm_region *region;
	int r;

	if (number < 0)
		return -EBUSY;
	options.name = kills_region(actor->number, (unsigned)number);
	options.device = a->world->device;
	options.kind = GPUWM_REGION_SCRATCH;
	options.writers = GPUWM_WRITERS_MANY;
	options.owner = GPUWM_OWNER_UID;
	options.bytes = KILLS_REGION_BYTES;
	mine[number].seed = 1 + (uint32_t)dice_throw(&actor->dice, UINT32_MAX - 1);
	doubt(a, &mine[number]);
	r = MAY_REFUSE(gpuwm_region_create(actor->client, &options, &region), DEATHS, EEXIST);
	if (r < 0)
		return r;
	kills_fill(filling, mine[number].seed);
	memcpy(gpuwm_region_address(region), filling, KILLS_REGION_BYTES);
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	return answered(&mine[number], 0, KILLS_THERE);
}

static int region_read(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	const struct kills_thing *mine = a->world->regions[actor->number];
	const int number = choose(a, mine, KILLS_REGIONS, KILLS_THERE);
	struct gpuwm_region *region;
	int r;

	if (number < 0)
		return -EBUSY;
	r = may_be_lost(
		a, MAY_REFUSE(gpuwm_region_open(actor->client, kills_region(actor->number, (unsigned)number), 0,
						0, &region),
			      DEATHS, ENOENT, EOWNERDEAD));
	if (r < 0)
		return r;
	kills_fill(filling, mine[number].seed);
	CHILD_ASSERT(memcmp(gpuwm_region_address(region), filling, KILLS_REGION_BYTES) == 0);
	CHILD_ASSERT(gpuwm_region_close(region) == 0);
	return 0;
}

static int region_remove(struct storm_actor *actor)
{
	struct actor *a = actor_of(actor);
	struct kills_thing *mine = a->world->regions[actor->number];
	const int number = choose(a, mine, KILLS_REGIONS, KILLS_THERE);
	int r;

	if (number < 0)
		return -EBUSY;
	doubt(a, &mine[number]);
	r = may_be_lost(
		a, MAY_REFUSE(gpuwm_region_remove(actor->client, kills_region(actor->number, (unsigned)number)),
			      DEATHS, ENOENT));
	return answered(&mine[number], r, KILLS_RETIRED);
}

/* ---- the actor ------------------------------------------------------------------------ */

const struct storm_operation kills_operations[] = {
	{"load", load, {20}},           {"take", take, {12}},
	{"look", look, {20}},           {"save", save, {10}},
	{"move", move, {16}},           {"retire", retire, {10}},
	{"make", region_make_one, {6}}, {"read", region_read, {6}},
	{"remove", region_remove, {4}}, {0},
};

int kills_actor(int argc, char **argv)
{
	static const struct storm_part part = {.operations = kills_operations};
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const int64_t deadline = clock_ms() + JOB_MS;
	static struct actor a;

	storm_actor_begin(&a.actor, argc, argv, sizeof(struct kills_world));
	a.world = (struct kills_world *)a.actor.board;
	options.flags = GPUWM_CONNECT_ADMIN;
	while (gpuwm_connect(&options, &a.admin) < 0) {
		CHILD_ASSERT(clock_ms() < deadline);
		pause_us(1000);
	}
	storm_actor_work(&a.actor, &part);
	gpuwm_close(a.admin);
	storm_actor_end(&a.actor);
	return 0;
}
