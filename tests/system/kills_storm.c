/* 10,000 kills in sum: scripts/kills runs pieces with successive seeds and writes tests/kills.log.
 * GPUWM_KILLS says how many, GPUWM_STORM_SEED repeats what is thrown, GPUWM_TEST_RESTART_DELAY is the keeper's --restart-delay. */
#include "kills_storm.h"

#include "tests/support/any/own_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

STORM_SUITE(kills_storm);

#define KILLS (SANITIZED ? 30 : 100)
#define CHECK_EACH 30 /* operations: about half of the names are used up then */

static const struct storm_play play = {
	.operations = kills_operations,
	.actor = kills_actor,
	.actors = KILLS_ACTORS,
	.board_bytes = sizeof(struct kills_world),
	.burst = 4,
	.beyond = KILLS_ACTORS,
	.strike = kills_strike,
	.check = kills_check,
};

/* Which all nodes have: here gpuwmd, and the gpuwm-peer that serves what gpuwmd holds. */
static void secret_write(void)
{
	char path[128];
	FILE *file;

	snprintf(path, sizeof path, "%s/secret", own_folder());
	file = fopen(path, "we");
	cr_assert(file && fchmod(fileno(file), 0600) == 0);
	cr_assert(fputs("a secret of the nodes of this test alone\n", file) >= 0 && fclose(file) == 0);
}

static void begin(struct kills_storm *s)
{
	storm_begin(&s->storm, "kills_storm", "GPUWM_KILLS", KILLS);
	secret_write();
	snprintf(
		s->limits, sizeof s->limits,
		"grace_ms = 300\n[peers]\nsecret = %s/secret\n[tiers]\nfolder = %s/described\nmin_resident = 0\n",
		own_folder(), own_folder());
	s->how = (struct kept){.limits = s->limits, .take_over = true};
	storm_serve(&s->storm, &s->how);
}

static void populate(struct kills_storm *s)
{
	const struct gpuwmd *d = s->storm.d;

	snprintf(s->peer_config, sizeof s->peer_config, "%s/peer.conf", d->dir);
	snprintf(s->peer_log, sizeof s->peer_log, "%s/peer.log", d->dir);
	storm_populate(&s->storm, &play);
	s->world = (struct kills_world *)s->storm.board;
	snprintf(s->world->root, sizeof s->world->root, "%s", d->root);
	snprintf(s->world->device, sizeof s->world->device, "%s", d->device);
	for (uint32_t seed = 1; seed <= KILLS_SEEDS; seed++) {
		char name[16];

		snprintf(name, sizeof name, "s%u", seed);
		checkpoint_write(s->storm.d, name, SMALL(seed));
	}
	kills_peer_start(s);
	kills_anchors_load(s);
}

static void tell(const struct kills_storm *s)
{
	storm_tell(&s->storm);
	fprintf(stderr,
		"kills_storm: seed %ju, %ju kills: %u of gpuwmd, %u of loaders, %u of clients, %u of gpuwm-peer, %u of "
		"keepers; %u successions of keepers, %u upgrades\n",
		(uintmax_t)s->storm.seed, (uintmax_t)kills_count(s), s->storm.gpuwmd_kills, s->loader_kills,
		s->storm.kills, s->peer_kills, s->keeper_kills, s->successions, s->upgrades);
}

Test(kills_storm, nothing_acknowledged_is_lost_and_nothing_is_left, .timeout = 3000)
{
	static struct kills_storm s;
	bool upgraded = false;
	char peer[256];

	SKIP_UNLESS(!SANITIZED || getenv("GPUWM_KILLS"),
		    "with sanitizers it runs by hand: GPUWM_KILLS is not set");
	SKIP_UNLESS(backend() != BACKEND_CUDA, "the CPU looks at the memory of regions");
	snprintf(peer, sizeof peer, "%s/bin/gpuwm-peer", build_path());
	SKIP_UNLESS(access(peer, X_OK) == 0, "this build has no gpuwm-peer: no OpenSSL");
	begin(&s);
	populate(&s);
	while (kills_count(&s) < s.storm.length) {
		storm_go_on(&s.storm, atomic_load(&s.storm.board->operations) + CHECK_EACH);
		storm_check(&s.storm);
		if (!upgraded && kills_count(&s) > s.storm.length / 2) {
			kills_upgrade(&s);
			upgraded = true;
		}
	}
	tell(&s);
	storm_finish(&s.storm);
	kills_end(&s);
	storm_end(&s.storm);
}
