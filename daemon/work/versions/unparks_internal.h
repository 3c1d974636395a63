/* What the files of unparks share. unpark.c has one lease that waits, unparks_group.c those that wait as one; unparks_needs.c knows what there
 * is, unparks.c who gets it. */
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
	char group[NAME_BYTES_MAX + 1]; /* of the leases that are awake together; "": this one alone */
	uint64_t group_leases; /* how many they are */
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

/* ---- groups: unparks_group.c ---- */

/* Returns the first lease that waits with this one (after NULL), or the next one after `after`; NULL: there is none. A lease waits with itself. */
struct unpark *group_next(const struct work *work, const struct unpark *of, const struct unpark *after);
/* Returns whether the lease waits with this one. */
bool group_has(const struct unpark *of, const struct lease *lease);
/* Returns whether this one asked last of its group. */
bool group_is_last(const struct work *work, const struct unpark *unpark);
/* Returns whether all leases of the group wait. If not, last->why says how many of them do. */
bool group_check_complete(const struct work *work, struct unpark *last);
/* The whole group keeps its place until then, or until a later time that one of it has asked for. */
void group_keep(const struct work *work, struct unpark *unpark, uint64_t until_ms);

/* ---- what there is: unparks_needs.c ---- */

/* What a group lacks on one device. */
struct need {
	struct device *device;
	uint64_t weights, room; /* bytes to be charged; both 0: nothing */
	uint64_t users; /* of them, in users' part of the budget */
	uint64_t had; /* room that those who ask for more have there */
};
struct needs {
	struct need list[DEVICES_MAX];
	uint32_t count;
};

/* A device, and what the group that waits first for it lacks there, or leaves besides. */
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

/* Returns whether the version lies on its devices, and stays there; whether it is on its way there. */
bool version_is_there(const struct version *version);
bool version_is_coming(const struct version *version);
/* Sets *ret to what the group of this one lacks. Fails as tiers_needed. */
int needs_of(struct work *work, const struct unpark *last, struct needs *ret, struct error *error);
/* Fails with -ENOSPC if a device would not have so much if it was empty. */
int needs_check_possible(const struct needs *needs, const struct unpark *unpark, struct error *error);
/* Returns whether everything is there, and no head would wait longer. */
bool needs_fit(const struct work *work, const struct needs *needs, const struct heads *heads);
/* The group has to wait: sets unpark->why. On devices where nobody waits before it, it becomes the head, and versions leave for it. */
void heads_add(struct work *work, const struct needs *needs, struct unpark *unpark, struct heads *heads);

#endif
