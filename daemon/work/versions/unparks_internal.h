/* What the files of unparks share. unpark.c has one lease that waits; unparks_needs.c knows what there is, unparks.c who gets it. */
#ifndef GPUWM_DAEMON_UNPARKS_INTERNAL_H
#define GPUWM_DAEMON_UNPARKS_INTERNAL_H

#include "unparks.h"
#include "../tiers/tiers.h"

/* The remedy if a lease can't be awake yet. */
#define UNPARK_LATER "unpark it again later, or with a time to wait"

struct unpark {
	struct lease *lease;
	uint64_t room; /* that it asks for */
	uint64_t before; /* that it had when it began to wait */
	uint64_t since_ms; /* of the wall */
	uint64_t until_ms; /* steady: when it loses its place */
	uint64_t promotion; /* that it waits for; 0: none */
	bool granted; /* the room is charged, and the version is there or on its way */
	bool failed; /* and `why` says how */
	bool told; /* those in the way have heard that it waits (`wanted`) */
	struct error why; /* why it has to wait */
	struct unpark *prev, *next;
};

/* Returns what the lease waits for; NULL: it does not wait. */
struct unpark *unpark_of(const struct lease *lease);
/* The lease waits from now on, last in the queue. Returns NULL and sets *error if there is no memory. */
struct unpark *unpark_new(struct work *work, struct lease *lease, struct error *error);
/* What was granted, if anything was, may go to others. */
void unpark_take_back(struct work *work, struct unpark *unpark);

/* What one lease lacks, on each device. */
struct need {
	struct device *device;
	uint64_t weights, room; /* bytes to be charged; both 0: nothing */
};
struct needs {
	struct need list[PARTS_PER_VERSION_MAX];
	uint32_t count;
};

/* A device, and what the lease that waits first for it lacks there, or leaves besides. */
struct head {
	const struct device *device;
	uint64_t
		lacking; /* bytes that have to come from awake leases; 0: everything is there, or comes by itself */
	uint64_t spare; /* with lacking 0: bytes that are there besides */
};
struct heads {
	struct head list[DEVICES_MAX];
	uint32_t count;
};

/* Sets *ret. resident: the version needs nothing more, since it is there or on its way. Fails as tiers_needed. */
int needs_of(struct work *work, const struct unpark *unpark, bool resident, struct needs *ret,
	     struct error *error);
/* Fails with -ENOSPC if a device would not have so much if it was empty. */
int needs_check_possible(const struct needs *needs, const struct unpark *unpark, struct error *error);
/* Returns whether everything is there, and no head would wait longer. */
bool needs_fit(struct work *work, const struct needs *needs, const struct unpark *unpark,
	       const struct heads *heads);
/* The lease has to wait: sets unpark->why. On devices where nobody waits before it, it becomes the head, and versions leave for it. */
void heads_add(struct work *work, const struct needs *needs, struct unpark *unpark, struct heads *heads);

#endif
