/* Two mappings of this process exchange what lies at their addresses. */
#include "../request/lease.h"
#include "../mapping/attach.h"

#include <errno.h>
#include <string.h>

/* ---- comparing --------------------------------------------------------- */

static struct layout layout_of(const struct gpuwm_mapping *mapping)
{
	return (struct layout){&mapping->part->index.view, mapping->version.model, mapping->version.tag};
}

static int compare_places(const struct gpuwm_mapping *mapping, const struct gpuwm_mapping *other,
			  struct error *error)
{
	const struct gpuwm_version_info *a = &mapping->version, *b = &other->version;

	if (strcmp(a->device, b->device) != 0)
		return error_set(error, -EXDEV, "attach both on one device",
				 "another device: %s@%s is on %s, %s@%s on %s", a->model, a->tag, a->device,
				 b->model, b->tag, b->device);
	if (a->rank != b->rank)
		return error_set(error, -EXDEV, "attach both with one rank",
				 "another rank: %s@%s is attached as rank %u, %s@%s as rank %u", a->model,
				 a->tag, a->rank, b->model, b->tag, b->rank);
	return 0;
}

/* Of one layout. */
static int compare_attachments(const struct mapped_part *a, const struct mapped_part *b, struct error *error)
{
	const struct memory_device *left = &a->device, *right = &b->device;

	if (!subset_is(&a->subset, &b->subset))
		return error_set(error, -EXDEV, "attach both with the same globs",
				 "another subset: other segments of %s are mapped than of %s", a->label,
				 b->label);
	if (left->peer_count != right->peer_count ||
	    memcmp(left->peers, right->peers, sizeof(int) * left->peer_count) != 0)
		return error_set(error, -EXDEV, "attach both with the same peers, in one order",
				 "other peers: other GPUs may read %s than %s", a->label, b->label);
	if (left->private_writes != right->private_writes)
		return error_set(error, -EINVAL, "attach both with private writes, or neither",
				 "of %s and %s only %s may be written privately", a->label, b->label,
				 left->private_writes ? a->label : b->label);
	return 0;
}

static int mappings_compare(const struct gpuwm_mapping *mapping, const struct gpuwm_mapping *other,
			    struct error *error)
{
	const struct layout now = layout_of(mapping), next = layout_of(other);
	int r = mapping_check_awake(mapping, error);

	if (r == 0)
		r = mapping_check_awake(other, error);
	if (r == 0)
		r = mapped_part_check_moves(mapping->part, error);
	if (r == 0)
		r = mapped_part_check_moves(other->part, error);
	if (r == 0)
		r = compare_places(mapping, other, error);
	if (r == 0)
		r = layout_compare(&now, &next, error);
	return r < 0 ? r : compare_attachments(mapping->part, other->part, error);
}

/* ---- what is mapped ---------------------------------------------------- */

/* The segments lie in the part's range. */
static int part_vacate(const struct mapped_part *part, struct memory_segment *segments, struct error *error)
{
	return part->device.ops->vacate(&part->device, &part->range, segments, part->segment_count, error);
}

static int part_fill(const struct mapped_part *part, struct memory_segment *segments, struct error *error)
{
	return part->device.ops->map_all(&part->device, &part->range, segments, part->segment_count, error);
}

static void part_put_back(struct mapped_part *part)
{
	struct error unused;

	part->lost = part_fill(part, part->segments, &unused) < 0;
}

/* When it fails, each of the two is as it was, or lost. The addresses of both are free before anything is mapped: no
 * segment is mapped twice. */
static int remap_both(struct mapped_part *a, struct mapped_part *b, struct error *error)
{
	struct error unused;
	int r = a->lost ? 0 : part_vacate(a, a->segments, error);

	if (r < 0)
		return r;
	r = b->lost ? 0 : part_vacate(b, b->segments, error);
	if (r < 0) {
		part_put_back(a);
		return r;
	}
	r = part_fill(a, b->segments, error);
	if (r == 0) {
		r = part_fill(b, a->segments, error);
		if (r < 0 && part_vacate(a, b->segments, &unused) < 0)
			a->lost = b->lost = true;
	}
	if (r < 0 && !(a->lost && b->lost)) {
		part_put_back(a);
		part_put_back(b);
	}
	return r;
}

/* Of two objects of one type. */
static void exchange_bytes(void *left, void *right, size_t bytes)
{
	char *a = left, *b = right;

	for (size_t i = 0; i < bytes; i++) {
		char before = a[i];

		a[i] = b[i];
		b[i] = before;
	}
}

/* The parts are nobody else's. */
static int exchange_claimed(struct mapped_part *a, struct mapped_part *b, bool idle, struct error *error)
{
	const char *remedy = "exchange again; or let each of these go, or switch it";
	struct error why;
	int r = idle ? 0 : a->device.ops->idle(&a->device, error);

	if (r < 0)
		return r;
	r = remap_both(a, b, error);
	if (r == 0) {
		/* A child that is made now closes the descriptors of each segment once. */
		fork_lock();
		exchange_bytes(&a->segments, &b->segments, sizeof(a->segments));
		fork_unlock();
		exchange_bytes(&a->index, &b->index, sizeof(a->index));
		exchange_bytes(a->version, b->version, sizeof(a->version));
		exchange_bytes(a->label, b->label, sizeof(a->label));
		a->lost = b->lost = false;
		return 0;
	}
	why = *error;
	if (a->lost && b->lost)
		return error_set(error, -ENOTRECOVERABLE, remedy,
				 "neither %s nor %s could be put back after this: %s", a->label, b->label,
				 why.message);
	if (a->lost || b->lost)
		return error_set(error, -ENOTRECOVERABLE, remedy, "%s could not be put back after this: %s",
				 a->lost ? a->label : b->label, why.message);
	return r;
}

static int tell_shared(const struct mapped_part *part, struct error *error)
{
	return error_set(error, -EBUSY, "let the others go first",
			 "another attachment of this process shares the mapping of %s", part->label);
}

static int parts_exchange(struct mapped_part *a, struct mapped_part *b, bool idle, struct error *error)
{
	int r;

	if (!mapped_part_claim(a))
		return tell_shared(a, error);
	if (!mapped_part_claim(b)) {
		mapped_part_unclaim(a);
		return tell_shared(b, error);
	}
	r = exchange_claimed(a, b, idle, error);
	mapped_part_unclaim(a);
	mapped_part_unclaim(b);
	return r;
}

/* ---- the call ---------------------------------------------------------- */

/* An address stays with its mapping: the lease that is there now gets it. What serves comes first. gpuwmd took the addresses
 * before, so it refuses one only if the client has as many as it may: then it takes it when the other lease has lost it. */
static void addresses_stay(struct gpuwm_mapping *first, const char *address, struct gpuwm_mapping *second,
			   const char *other)
{
	int r = mapping_announce_again(first, address, NULL);

	mapping_announce_again(second, other, NULL);
	if (r == -EDQUOT)
		mapping_announce_again(first, address, NULL);
}

/* Each lease goes with its version, and so does the client that has it. The keys and owners
 * that each attach asked for stay with the mapping. */
static void exchange_leases(struct gpuwm_mapping *mapping, struct gpuwm_mapping *other)
{
	char address[ADDRESS_BYTES_MAX + 1], others[ADDRESS_BYTES_MAX + 1];

	lease_address(mapping->client, mapping->lease, address);
	lease_address(other->client, other->lease, others);
	exchange_bytes(&mapping->version, &other->version, sizeof(mapping->version));
	exchange_bytes(&mapping->lease, &other->lease, sizeof(mapping->lease));
	exchange_bytes(&mapping->client, &other->client, sizeof(mapping->client));
	if (address[0])
		addresses_stay(mapping, address, other, others);
	else if (others[0])
		addresses_stay(other, others, mapping, address);
}

static int mappings_exchange(struct gpuwm_mapping *mapping, struct gpuwm_mapping *other,
			     const struct gpuwm_exchange_options *options, struct error *error)
{
	struct mapped_part *a = mapping->part, *b = other->part;
	/* One version at two addresses: only the leases change places. */
	const bool moves = strcmp(mapping->version.id, other->version.id) != 0 || a->lost || b->lost;
	int r;

	if (mapping == other)
		return error_set(error, -EINVAL, "attach the other version, and exchange with that",
				 "both mappings are the same one, of %s", a->label);
	r = mappings_compare(mapping, other, error);
	if (r < 0)
		return r;
	if (moves && !options->check)
		r = parts_exchange(a, b, options->idle, error);
	else if (moves && mapped_part_is_shared(a))
		r = tell_shared(a, error);
	else if (moves && mapped_part_is_shared(b))
		r = tell_shared(b, error);
	if (r == 0 && !options->check)
		exchange_leases(mapping, other);
	return r;
}

int gpuwm_exchange(struct gpuwm_mapping *mapping, struct gpuwm_mapping *other,
		   const struct gpuwm_exchange_options *given)
{
	struct gpuwm_exchange_options options;
	struct error error;
	int r = fork_check(&mapping->hook, &error);

	if (r == 0)
		r = fork_check(&other->hook, &error);
	if (r == 0)
		r = client_take_options(given, &options, sizeof(options), &error);
	if (r == 0)
		r = mappings_exchange(mapping, other, &options, &error);
	return r < 0 ? client_fail(&error) : 0;
}
