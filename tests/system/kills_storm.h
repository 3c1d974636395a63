/* The storm of kills: everything that changes what gpuwmd holds goes on in one world, loads, moves, saves, takes from a node, regions,
 * and keeper and gpuwmd are upgraded, while gpuwmd, keepers, loaders, gpuwm-peer and clients are killed.
 *
 * The one model of what was acknowledged lies on the board. An actor notes a change there before it asks for it, and its end when it
 * has the answer; whoever is killed in between, or gets no answer, leaves a doubt, which the next check settles. Names are an actor's
 * own, and are used again only after a check: so what a check finds belongs to the last change.
 */
#ifndef GPUWM_TESTS_KILLS_STORM_H
#define GPUWM_TESTS_KILLS_STORM_H

#include "storm.h"

#define KILLS_ACTORS 4
#define KILLS_VERSIONS 5 /* of an actor; each is of a model of its own */
#define KILLS_REGIONS 2 /* the same */
#define KILLS_SEEDS 3 /* checkpoints, from 1 on */
#define KILLS_REGION_BYTES KB(64)

enum kills_state {
	KILLS_GONE,
	KILLS_DOUBT, /* somebody asked for a change, and has no answer */
	KILLS_THERE, /* acknowledged */
	KILLS_RETIRED, /* the end is acknowledged */
};

struct kills_thing {
	_Atomic uint32_t state;
	uint32_t seed; /* of what it holds, if it is there */
	/* of the store, when the change was asked for */
	uint64_t era;
};

struct kills_world {
	struct storm_board board;
	char root[96], device[64];
	unsigned port; /* gpuwm-peer's */
	/* How often all memory may have gone with a keeper: what was made in an earlier era is there only if it was described. */
	_Atomic uint64_t era;
	_Atomic uint64_t settled; /* the era of the last check */
	struct kills_thing versions[KILLS_ACTORS][KILLS_VERSIONS], regions[KILLS_ACTORS][KILLS_REGIONS],
		saves[KILLS_ACTORS][KILLS_SEEDS]; /* saves: [..][seed - 1] */
};

/* Valid until the next call. */
const char *kills_model(unsigned actor, unsigned version);
const char *kills_region(unsigned actor, unsigned region);
/* The folder into which an actor saves versions of this seed; the checkpoint of the seed. */
const char *kills_save(const struct kills_world *world, unsigned actor, uint32_t seed);
const char *kills_checkpoint(const struct kills_world *world, uint32_t seed);
/* The model whose v1 the test loads from that checkpoint, and which nobody retires. So what was taken from a node comes back from its
 * files, whatever the only node of this world, gpuwmd itself, has in memory. */
const char *kills_anchor(uint32_t seed);
/* What a region that was filled from this seed holds. */
void kills_fill(unsigned char bytes[KILLS_REGION_BYTES], uint32_t seed);

/* kills_storm_ops.c */
extern const struct storm_operation kills_operations[];
int kills_actor(int argc, char **argv);

/* ---- the conductor --------------------------------------------------------- */

struct kills_storm {
	struct storm storm;
	struct kills_world *world;
	struct kept how; /* of the keeper that starts next */
	char limits[512], peer_config[128], peer_log[128];
	pid_t peer;
	/* When a keeper was killed: the version was described; it was retired, and the folder of descriptions knew. */
	bool described[KILLS_ACTORS][KILLS_VERSIONS], ended[KILLS_ACTORS][KILLS_VERSIONS];
	unsigned loader_kills, peer_kills, keeper_kills, successions, upgrades;
};

/* kills_storm_strikes.c */
void kills_peer_start(struct kills_storm *s);
void kills_peer_kill(struct kills_storm *s);
/* Waits until a gpuwmd serves, whichever it is. */
void kills_serves(struct kills_storm *s);
void kills_strike(struct storm *storm);
/* A keeper of the next version's gpuwmd takes over. */
void kills_upgrade(struct kills_storm *s);
uint64_t kills_count(const struct kills_storm *s);

/* kills_storm_check.c */
/* Notes which versions are described, and which have ended for good: what a keeper's death can't change. */
void kills_note_lasting(struct kills_storm *s);
void kills_check(struct storm *storm);
/* Loads the anchors, and waits until they are described. */
void kills_anchors_load(struct kills_storm *s);
/* All bytes are right; then everything is given up, and nothing may be left. */
void kills_end(struct kills_storm *s);

#endif
