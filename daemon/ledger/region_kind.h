/* The kinds of regions, and in what gpuwmd treats them differently. What the control memory has for each is in proto/control.h. */
#ifndef GPUWM_DAEMON_REGION_KIND_H
#define GPUWM_DAEMON_REGION_KIND_H

#include <stdbool.h>

struct region;
struct region_figures;
struct region_wish;

struct region_kind {
	const char *name; /* in messages and in the state */
	/* A process owns a region of this kind, and allocates from it. The others belong to no process. */
	bool has_owner;
	/* Its users get the bytes that were asked for. Else they get them rounded up to the device's granularity. */
	bool has_exact_bytes;
	/* Whether the sizes of a region that the state has can be of this kind. */
	bool (*fits)(const struct region_wish *wish);
	/* What is wrong with the control memory, besides what control_damage finds; NULL: nothing. */
	const char *(*damage)(const struct region *region);
	/* Adds what the control memory says, bounded by what the region has. `look` also sets largest_free and holds. */
	void (*count)(const struct region *region, struct region_figures *ret);
	void (*look)(const struct region *region, struct region_figures *ret);
};

extern const struct region_kind region_kind_pool, region_kind_queue, region_kind_blocks, region_kind_scratch;

/* Returns the kind of this name, or NULL. */
const struct region_kind *region_kind_find(const char *name);

#endif
