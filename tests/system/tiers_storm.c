/* Everything about tiers at random, with a budget of half of what there is, while loaders and gpuwmd are killed. A model in the test says
 * what is leased, pinned and there: what is leased or pinned is never demoted, each attach sees the right bytes, the budget holds, and
 * at the end nothing is left. GPUWM_TIERS_STORM_OPERATIONS says how many operations (10000 for the long one), GPUWM_STORM_SEED repeats
 * what is thrown. */
#include "described.h"
#include "storm.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>

STORM_SUITE(tiers_storm);

#define VERSIONS 8
#define LEASES 3 /* of a version at a time */
#define OPERATIONS 120 /* a few seconds */
#define ATTACH_MS 20000

/* Four of the eight fit: SMALL takes 0.4 MiB of host memory, and one page of 2 MiB on a GPU, beside a context. */
#define BUDGET backend() == BACKEND_HOST ? "host = 1800K" : "* = 585M"

/* What the test knows. */
struct modelled {
	bool there;
	bool pinned;
	unsigned pinned_on; /* the tier then: a number that is greater for a lower one */
	struct gpuwm_mapping *leases[LEASES];
	unsigned lease_count;
};

static struct storm storm;
static struct gpuwmd *d;
static struct gpuwm_client *worker;
static struct modelled versions[VERSIONS];
static char conf[512];
static unsigned done, refused;

static const char *name_of(unsigned i)
{
	static char names[VERSIONS][16];

	snprintf(names[i], sizeof names[i], "m@v%u", i);
	return names[i];
}

static const char *tag_of(unsigned i)
{
	return name_of(i) + 2;
}

static bool is_held(const struct modelled *v)
{
	return v->pinned || v->lease_count > 0;
}

static unsigned held(void)
{
	unsigned count = 0;

	for (unsigned i = 0; i < VERSIONS; i++)
		count += versions[i].there && is_held(&versions[i]);
	return count;
}

/* ---- operations ---------------------------------------------------------- */

/* Whether a call may fail so: there is no room beside what is held, it moves, gpuwmd has just restarted. */
static void allow(int code, const char *what)
{
	const bool fine = code >= 0 || code == -EBUSY || code == -EAGAIN || code == -ECANCELED ||
			  code == -EIO || code == -ETIMEDOUT || (code == -ENOSPC && held() > 0);

	cr_assert(fine, "%s: %d: %s (%s)", what, code, gpuwm_error()->message, gpuwm_error()->detail);
	done += code >= 0;
	refused += code < 0;
}

static void load(unsigned i)
{
	int r;

	if (versions[i].there)
		return;
	r = load_try(d, checkpoint_write(d, tag_of(i), SMALL(i + 1)), name_of(i));
	allow(r, "load");
	versions[i].there = r >= 0;
}

static void attach(unsigned i)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct modelled *v = &versions[i];
	int r;

	if (!v->there || v->lease_count == LEASES)
		return;
	options.wait_ms = ATTACH_MS;
	r = gpuwm_attach(worker, name_of(i), &options, &v->leases[v->lease_count]);
	allow(r, "attach");
	if (r < 0)
		return;
	cr_assert(mapping_holds(v->leases[v->lease_count], i + 1));
	v->lease_count++;
}

static void detach(unsigned i)
{
	struct modelled *v = &versions[i];

	if (v->lease_count == 0)
		return;
	cr_assert(mapping_holds(v->leases[--v->lease_count], i + 1));
	gpuwm_detach(v->leases[v->lease_count]);
}

/* tier: NULL to promote it. */
static void move(unsigned i, const char *tier)
{
	uint64_t jobs[GPUWM_MOVE_JOBS_MAX];
	size_t count = 0;
	int r;

	if (!versions[i].there)
		return;
	r = tier ? gpuwm_demote(d->admin, name_of(i), tier, jobs, &count)
		 : gpuwm_promote(d->admin, name_of(i), jobs, &count);
	if (tier && r == -EINVAL) /* it lies lower, or belongs to host */
		return;
	if (tier && is_held(&versions[i]))
		cr_assert(r == -EBUSY || count == 0, "a held version is demoted: %d", r);
	allow(r, tier ? "demote" : "promote");
	for (size_t k = 0; r >= 0 && k < count && dice_percent(&storm.dice, 60); k++)
		gpuwm_job_wait(d->admin, jobs[k], ATTACH_MS);
}

/* 0: on its devices. */
static unsigned tier_of(unsigned i)
{
	json_t *entry = version_entry(d, "m", tag_of(i));
	const char *tier = json_string_value(json_object_get(entry, "tier"));
	unsigned number = !tier ? 0 : strcmp(tier, "host") == 0 ? 1 : 2;

	json_decref(entry);
	return number;
}

static void pin(unsigned i)
{
	struct modelled *v = &versions[i];

	if (!v->there)
		return;
	OK(v->pinned ? gpuwm_unpin(d->admin, name_of(i), "p") : gpuwm_pin(d->admin, name_of(i), "p"));
	v->pinned = !v->pinned;
	v->pinned_on = tier_of(i);
}

static void swap(unsigned i)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	if (!versions[i].there)
		return;
	options.model = "m";
	options.alias = "prod";
	options.to = tag_of(i);
	allow(gpuwm_swap(d->admin, &options, NULL), "swap");
}

static void retire(unsigned i)
{
	if (!versions[i].there || is_held(&versions[i]))
		return;
	version_drop(d, "m", tag_of(i));
	versions[i].there = false;
}

static void demote_some(unsigned i)
{
	move(i, backend() != BACKEND_HOST && dice_percent(&storm.dice, 60) ? "host" : "files");
}

static void promote(unsigned i)
{
	move(i, NULL);
}

static void kill_loaders(unsigned unused)
{
	(void)unused;
	loaders_kill(d, SIGKILL);
}

static void kill_gpuwmd(unsigned unused)
{
	const struct kept how = {.limits = conf};

	(void)unused;
	for (unsigned i = 0; i < VERSIONS; i++) {
		while (versions[i].lease_count > 0)
			detach(i);
	}
	gpuwm_close(worker);
	if (dice_percent(&storm.dice, 50)) {
		kept_kill(d, SIGKILL);
	} else { /* all memory goes: wait until everything that is there is described */
		for (unsigned i = 0; i < VERSIONS; i++)
			cr_assert(!versions[i].there || EVENTUALLY(SOON_MS, is_described(d, tag_of(i))));
		cr_assert(EVENTUALLY(SOON_MS, !tiers_pending(d)));
		keeper_restart(d, &how);
		kept_wait(d);
	}
	worker = client_new();
	for (unsigned i = 0; i < VERSIONS; i++) /* what lost its memory lies on files until it is restored */
		versions[i].pinned_on = 2;
}

/* ---- what holds ------------------------------------------------------------ */

static void check_version(unsigned i)
{
	struct modelled *v = &versions[i];
	json_t *entry = version_entry(d, "m", tag_of(i));
	const unsigned tier = entry ? tier_of(i) : 0;

	cr_assert(!v->there || entry, "%s is lost", name_of(i));
	if (v->there) {
		cr_assert(v->lease_count == 0 || tier == 0, "%s is leased and on tier %u", name_of(i), tier);
		cr_assert(!v->pinned || tier <= v->pinned_on, "%s was pinned on tier %u and is on %u",
			  name_of(i), v->pinned_on, tier);
		v->pinned_on = tier;
		cr_assert_eq((unsigned)json_integer_value(json_object_get(entry, "leases")), v->lease_count);
		cr_assert_eq(json_array_size(json_object_get(entry, "pins")), v->pinned);
	}
	json_decref(entry);
}

static void check_all(void)
{
	for (unsigned i = 0; i < VERSIONS; i++)
		check_version(i);
	cr_assert_leq(device_used(d), device_number(d, "budget"));
}

/* ---- the storm -------------------------------------------------------------- */

static void step(void)
{
	static void (*const steps[])(unsigned version) = {load, attach, detach, demote_some,  promote,
							  pin,  swap,   retire, kill_loaders, kill_gpuwmd};
	static const unsigned often[] = {250, 250, 200, 90, 70, 50, 30, 40, 12, 8};

	steps[storm_choose(&storm.dice, often, sizeof often / sizeof often[0])](
		(unsigned)dice_throw(&storm.dice, VERSIONS));
}

static void make_conf(void)
{
	snprintf(conf, sizeof conf,
		 "grace_ms = 100\n[tiers]\nfolder = %s/tiers-storm\nmin_resident = 0\n"
		 "[budget]\n%s\n[model.1]\nmatch = *\nevict = %s\n",
		 own_folder(), BUDGET,
		 backend() != BACKEND_HOST && dice_percent(&storm.dice, 50) ? "host" : "files");
}

static void end(void)
{
	for (unsigned i = 0; i < VERSIONS; i++) {
		while (versions[i].lease_count > 0)
			detach(i);
		if (versions[i].pinned)
			pin(i);
	}
	gpuwm_close(worker);
	for (unsigned i = 0; i < VERSIONS; i++)
		retire(i);
	/* It was counted while something was under way. The worker's connection may still be ending. */
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "sessions") == 1 && status_of(d, "fds") <= d->fds));
	d->fds = fds_settled(d);
}

Test(tiers_storm, leased_and_pinned_versions_stay_and_every_attach_sees_its_bytes)
{
	storm_begin(&storm, "tiers_storm", "GPUWM_TIERS_STORM_OPERATIONS", OPERATIONS);
	make_conf();
	d = gpuwmd_start_kept(&(struct kept){.limits = conf});
	storm.d = d;
	worker = client_new();
	for (uint64_t i = 0; i < storm.length; i++) {
		step();
		check_all();
	}
	end();
	fprintf(stderr, "tiers_storm: %ju operations, of which %u changed something, %u were refused\n",
		(uintmax_t)storm.length, done, refused);
	cr_assert(done > refused);
	storm_end(&storm);
}
