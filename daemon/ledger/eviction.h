/* Which versions leave a device so that others have room there. These functions only read the ledger: work/tiers/evictions.c demotes. */
#ifndef GPUWM_DAEMON_EVICTION_H
#define GPUWM_DAEMON_EVICTION_H

#include "device.h"
#include "registry.h"

/* Why memory of a device stays there. */
enum eviction_stay {
	STAYS_LEASED,
	STAYS_PINNED,
	STAYS_BUSY, /* a job reads it, it is not ready, it is tainted, or it moves to another device */
	STAYS_RECENT, /* it was not resident for long enough */
	STAYS_FAILED, /* its last demotion failed a short time ago */
	STAYS_RULE, /* no section of the configuration allows it */
	STAYS_WITHOUT_FILES, /* it would go to files, and nobody knows its files */
	STAYS_WITHOUT_HOST, /* it would go to host, whose budget has no room for it */
	EVICTION_STAYS,
};

struct eviction_before;

/* Who needs room. */
struct eviction_wish {
	const struct device *device;
	uint64_t bytes; /* needed on the device */
	uint64_t host_left; /* bytes of host memory that demoted versions may take */
	const struct eviction_before *before; /* zeroed: nothing */
	const struct version *except; /* never chosen; may be NULL */
	uint64_t now_ms; /* since 1970 */
	uint64_t min_resident_ms;
	/* Returns whether the version may leave for this wish, and sets *ret to the tier where it may go. */
	bool (*may_go)(void *data, const struct version *version, enum tier *ret);
	void *data; /* of may_go */
};

struct eviction {
	struct version *version;
	enum tier to;
	uint64_t bytes; /* that come free on the device */
	bool chosen; /* of a plan that is done, all are */
};

struct eviction_plan {
	struct eviction *list; /* malloced; least recently used first */
	size_t count;
	uint64_t bytes; /* of the list */
	uint64_t coming; /* bytes of versions that leave the device already, or will have left it before */
	uint64_t stays[EVICTION_STAYS]; /* bytes, by the reason */
	uint64_t recent_until_ms; /* when the first version is no longer STAYS_RECENT; 0: there is none */
};

/* What will have happened before the wish is granted, because the same load needs room for other parts first. */
struct eviction_before {
	const struct eviction_plan *plans; /* all of their versions leave */
	size_t count;
	uint64_t host_bytes; /* of host memory that the load itself takes */
};

/* Returns the bytes of host memory that the load and the versions of the plans take. */
uint64_t eviction_host_taken(const struct eviction_before *before);
/* Returns the bytes of host memory that come free because versions of the plans go to files. */
uint64_t eviction_host_freed(const struct eviction_before *before, const struct device *host);

/* Returns when the version was last used, in milliseconds since 1970: the end of its last lease, or the time when it came onto its
 * devices, whichever was later. */
uint64_t version_used_ms(const struct version *version);
/* Returns whether one of its parts belongs to host memory, so that the version can't be demoted to it. */
bool version_belongs_to_host(const struct version *version);
/* Returns whether the version may be demoted to this tier: a tier without memory needs a description, one with memory elsewhere needs
 * parts that belong there, all of them to GPUs. */
bool version_may_lie_on(const struct version *version, enum tier tier);

/* Returns when the version will have been resident for min_resident_ms; 0: it has been by now. All are milliseconds, times since 1970. */
uint64_t version_recent_until(const struct version *version, uint64_t now_ms, uint64_t min_resident_ms);

/* Returns whether a job or a move keeps the version where it is. One that makes its host copy does not. */
bool version_is_busy(const struct version *version);
/* Returns the bytes that would come free on the device if this version left it: segments that others hold stay. */
uint64_t eviction_bytes(const struct version *version, const struct device *device);

/* Chooses ready versions that nobody leases or pins, least recently used first, and not more than are needed. The caller frees
 * ret->list, after errors too.
 *   -ENOSPC  The versions that may leave and that host has room for, and those that leave already, have fewer bytes than the wish. The
 *            list is empty then.
 *   -ENOMEM */
int eviction_choose(struct registry *registry, const struct eviction_wish *wish, struct eviction_plan *ret);

/* Writes why memory stays on the device, such as "3.0 GiB leased, 1.0 GiB pinned". If nothing stays, the text is empty. */
#define EVICTION_TEXT 400
void eviction_explain(const struct eviction_plan *plan, char text[EVICTION_TEXT]);

#endif
