#include "relocation.h"
#include "registry_internal.h"
#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>

struct device *replica_place(const struct replica *replica, enum tier tier, const struct device_table *devices)
{
	const char *device = tier_device(tier, replica->device->id);

	return device ? device_find(devices, device) : NULL;
}

uint32_t replica_count_segments(const struct replica *replica)
{
	return replica->sizes ? replica->size_count : replica->segment_count;
}

static uint64_t size_of(const struct replica *replica, uint32_t i)
{
	return replica->sizes ? replica->sizes[i] : replica->segments[i].segment->bytes;
}

int replica_sizes(const struct replica *replica, uint64_t **ret_sizes)
{
	const uint32_t count = replica_count_segments(replica);
	uint64_t *sizes = calloc((size_t)count + 1, sizeof(*sizes));

	if (!sizes)
		return -ENOMEM;
	for (uint32_t i = 0; i < count; i++)
		sizes[i] = size_of(replica, i);
	*ret_sizes = sizes;
	return 0;
}

/* ---- what arrives ---- */

static int check_arrived(const struct replica *replica, const struct part *part, struct error *error)
{
	const uint32_t count = replica_count_segments(replica);

	if (part->segment_count != count)
		return error_set(error, -EBADMSG, NULL, "the moved part has %u segments, not %u",
				 part->segment_count, count);
	for (uint32_t i = 0; i < count; i++) {
		if (part->segments[i].bytes != size_of(replica, i))
			return error_set(error, -EBADMSG, NULL,
					 "segment %u of the moved part has %llu bytes, not %llu", i,
					 (unsigned long long)part->segments[i].bytes,
					 (unsigned long long)size_of(replica, i));
	}
	return 0;
}

static struct segment *twin_of(const struct relocated *new, uint32_t i)
{
	return new->twins ? new->twins[i].segment : NULL;
}

/* Segments that nobody uses yet, without descriptors; and twins. */
static int make_segments(struct relocated *new, const struct part *part)
{
	new->segments = calloc((size_t)part->segment_count + 1, sizeof(*new->segments));
	for (uint32_t i = 0; new->segments &&i < part->segment_count; i++) {
		new->segments[i].segment = twin_of(new, i);
		if (!new->segments[i].segment)
			new->segments[i].segment = segment_new(-1, part->segments[i].bytes, 0);
		if (!new->segments[i].segment)
			break;
		new->count++;
	}
	if (new->segments &&new->count == part->segment_count)
		return 0;
	while (new->count > 0)
		segment_free_unused(new->segments[--new->count].segment);
	free(new->segments);
	new->segments = NULL;
	return -ENOMEM;
}

int relocated_take(const struct replica *replica, struct relocated *new, struct part *part, struct error *error)
{
	int r = check_arrived(replica, part, error);

	if (r == 0 && make_segments(new, part) < 0)
		r = out_of_memory(error);
	for (uint32_t i = 0; r == 0 && i < new->count; i++) {
		struct segment *segment = new->segments[i].segment;

		segment->uses++;
		if (twin_of(new, i))
			continue;
		segment->fd = part->segments[i].fd;
		part->segments[i].fd = -1;
		budget_split(&new->charge, segment->bytes, &segment->charge);
		new->segments[i].last = true;
	}
	return r;
}

void relocated_clear(struct relocated *part)
{
	for (uint32_t i = 0; i < part->count; i++)
		segment_drop(part->segments[i].segment);
	free(part->segments);
	free(part->sizes);
	free(part->twins);
	budget_release(&part->charge);
	*part = (struct relocated){0};
}

/* ---- twins ---- */

static bool has_origins(const struct version *version)
{
	uint32_t i = 0;

	while (i < version->replica_count && !version->replicas[i].origins)
		i++;
	return i < version->replica_count;
}

/* Returns the position of the segment with this origin among those of the part, or that of none. */
static uint32_t find_origin(const struct version *version, const struct replica *part,
			    const struct origin *origin)
{
	const uint32_t count = replica_count_segments(part);
	uint32_t k = 0;

	for (; k < count; k++) {
		const struct origin of = replica_origin(version, part, k);

		if (origin_equal(&of, origin))
			break;
	}
	return k;
}

/* Versions of which neither shared anything when it was loaded have no origin in common. */
static bool may_be_akin(const struct version *version, const struct version *other)
{
	return other != version && version->by_operator && other->by_operator &&
	       (has_origins(version) || has_origins(other));
}

bool version_is_akin(const struct version *version, const struct version *other)
{
	for (uint32_t i = 0; may_be_akin(version, other) && i < version->replica_count; i++) {
		const struct replica *own = &version->replicas[i],
				     *part = version_replica(other, own->rank, own->device);

		for (uint32_t k = 0; part && k < replica_count_segments(own); k++) {
			const struct origin origin = replica_origin(version, own, k);

			if (find_origin(other, part, &origin) < replica_count_segments(part))
				return true;
		}
	}
	return false;
}

uint64_t version_twin_bytes(const struct version *version, const struct version *other,
			    const struct device *device)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; may_be_akin(version, other) && i < version->replica_count; i++) {
		const struct replica *own = &version->replicas[i],
				     *part = version_replica(other, own->rank, own->device);

		for (uint32_t k = 0; part && part->lies_on == device && k < part->segment_count; k++) {
			const struct origin origin = replica_origin(other, part, k);

			if (!segment_is_shared(part->segments[k].segment) &&
			    find_origin(version, own, &origin) < replica_count_segments(own))
				bytes += part->segments[k].segment->bytes;
		}
	}
	return bytes;
}

static void find_twins_in(const struct version *version, const struct replica *own, struct version *other,
			  struct relocated *new)
{
	const struct replica *part = version_replica(other, own->rank, own->device);

	for (uint32_t i = 0; part && part->lies_on == new->onto &&i < replica_count_segments(own); i++) {
		const struct origin origin = replica_origin(version, own, i);
		const uint32_t k =
			new->twins[i].segment ? part->segment_count : find_origin(other, part, &origin);
		struct segment *segment = k < part->segment_count ? part->segments[k].segment : NULL;

		if (!segment || segment->damaged || segment->bytes != size_of(own, i))
			continue;
		new->twins[i] = (struct relocated_twin){other, segment};
		new->twin_count++;
		new->twin_bytes += segment->bytes;
	}
}

int relocated_find_twins(const struct version *version, uint32_t i, struct relocated *new,
			 bool (*may)(void *data, const struct version *twin), void *data)
{
	const struct replica *own = &version->replicas[i];
	struct version *other = NULL;

	free(new->twins);
	new->twins = calloc((size_t)replica_count_segments(own) + 1, sizeof(*new->twins));
	new->twin_count = 0;
	new->twin_bytes = 0;
	if (!new->twins)
		return -ENOMEM;
	while ((other = registry_next_version(version->model->registry, NULL, other))) {
		if (may_be_akin(version, other) && other->state == VERSION_READY && !other->freeing &&
		    other->moving_to == other->tier && !other->tainted && may(data, other))
			find_twins_in(version, own, other, new);
	}
	return 0;
}

void relocated_hold_twins(struct relocated *new)
{
	for (uint32_t i = 0, left = new->twin_count; left > 0; i++) {
		if (!new->twins[i].version)
			continue;
		new->twins[i].version->readers++;
		left--;
	}
	new->holds_twins = true;
}

void relocated_let_go_of_twins(struct relocated *new)
{
	for (uint32_t i = 0, left = new->holds_twins ? new->twin_count : 0; left > 0; i++) {
		if (!new->twins[i].version)
			continue;
		new->twins[i].version->readers--;
		left--;
	}
	new->holds_twins = false;
}

/* ---- quotas ---- */

int version_charge_fds(struct version *version, uint64_t more, struct error *error)
{
	return version_charge_part(version, more, 0, error);
}

void version_uncharge_fds(struct version *version, uint64_t less)
{
	struct quota_charge *fds = &record_of(version)->charges.fds;

	quota_shrink(fds, fds->amount > less ? fds->amount - less : 0);
}

/* ---- the step ---- */

static void segment_leave(struct registry_counts *counts, struct segment_hold *hold)
{
	const struct segment *segment = hold->segment;
	const bool shared = segment_is_shared(segment);

	segment_let_go(hold);
	if (shared && !segment_is_shared(segment))
		counts->shared_bytes -= segment->bytes;
	if (!hold->last)
		return;
	counts->segments--;
	counts->fds--;
	counts->bytes -= segment->bytes;
}

static void hold_new(struct version *version, struct relocated *part)
{
	for (uint32_t i = 0; i < part->count; i++) {
		struct segment *segment = part->segments[i].segment;

		segment_hold(&part->segments[i], segment, version);
		segment->uses--; /* the use that the segment had becomes the part's */
		segment_count_hold(&version->model->registry->counts, segment);
	}
}

static void set_spare(struct segment_hold *holds, uint32_t count, bool spare)
{
	for (uint32_t i = 0; i < count; i++)
		holds[i].spare = spare;
}

/* The host copy goes from the part into the entry, with its holds. */
static void take_spares(struct registry *registry, struct replica *replica, struct relocated *part)
{
	part->segments = replica->spares;
	part->count = replica->spare_count;
	set_spare(part->segments, part->count, false);
	registry->counts.host_copies -= replica->spares != NULL;
	replica->spares = NULL;
	replica->spare_count = 0;
	replica->spares_on = NULL;
}

/* The other way round. */
static void keep_spares(struct registry *registry, struct replica *replica, struct device *on,
			struct relocated *part)
{
	replica->spares_on = on;
	replica->spares = part->segments;
	replica->spare_count = part->count;
	registry->counts.host_copies++;
	set_spare(replica->spares, replica->spare_count, true);
	part->segments = NULL;
	part->count = 0;
}

static void relocate(struct version *version, struct replica *replica, struct relocated *part)
{
	struct registry_counts *counts = &version->model->registry->counts;
	struct segment_hold *old = replica->segments;
	const uint32_t old_count = replica->segment_count;

	for (uint32_t i = 0; i < old_count && !part->keeps_copy; i++)
		segment_leave(counts, &old[i]);
	if (part->from_copy)
		take_spares(version->model->registry, replica, part);
	else
		hold_new(version, part);
	/* A segment that other versions hold keeps its charge. Such segments are of operators, whom no quota counts. */
	for (uint32_t i = 0; i < part->count && i < old_count; i++) {
		const bool alone = part->keeps_copy ? !segment_is_shared(old[i].segment) : old[i].last;

		if (alone && !part->segments[i].segment->charge.quota.quota)
			budget_move_user(&old[i].segment->charge, &part->segments[i].segment->charge);
	}
	free(replica->sizes);
	replica->sizes = part->sizes;
	replica->size_count = part->sizes ? old_count : 0;
	replica->segments = part->segments;
	replica->segment_count = part->count;
	part->sizes = NULL;
	part->segments = old;
	part->count = old_count;
	if (part->keeps_copy)
		keep_spares(version->model->registry, replica, replica->lies_on, part);
	replica->lies_on = part->onto;
}

/* What was told of its parts is told anew. */
static void forget_told(struct version *version)
{
	free(version->told);
	version->told = NULL;
	version->told_bytes = 0;
}

void version_relocate(struct version *version, enum tier to, struct relocated *parts)
{
	if (version_is_resident(version) && !tier_is_resident(to))
		version->stale_leases = lease_last(version->model->registry);
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (parts[i].moves)
			relocate(version, &version->replicas[i], &parts[i]);
	}
	version->model->registry->counts.demoted += !tier_is_resident(to);
	version->model->registry->counts.demoted -= !version_is_resident(version);
	version->tier = version->moving_to = to;
	if (tier_is_resident(to))
		version->resident_ms = clock_wall_ms();
	forget_told(version);
}

bool version_has_whole_copy(const struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!version->replicas[i].spares)
			return false;
	}
	return version->replica_count > 0;
}

void version_add_host_copy(struct version *version, struct relocated *parts)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!parts[i].moves || parts[i].from_copy)
			continue;
		hold_new(version, &parts[i]);
		keep_spares(version->model->registry, &version->replicas[i], parts[i].onto, &parts[i]);
		parts[i].moves = false;
	}
	forget_told(version);
}

void version_take_host_copy(struct version *version, struct relocated *parts)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		take_spares(version->model->registry, &version->replicas[i], &parts[i]);
		parts[i].moves = true;
		for (uint32_t k = 0; k < parts[i].count; k++)
			segment_leave(&version->model->registry->counts, &parts[i].segments[k]);
	}
	forget_told(version);
}

void version_describe(struct version *version, struct description *description)
{
	description_free(version->description);
	version->description = description;
	forget_told(version);
}
