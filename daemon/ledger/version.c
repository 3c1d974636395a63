#include "registry_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- states ---- */

static const struct {
	const char *name;
	unsigned next; /* a bit for each state that may follow */
} states[VERSION_STATES] = {
	[VERSION_BUILDING] = {"building", 1u << VERSION_CHECKING | 1u << VERSION_FAILED},
	[VERSION_CHECKING] = {"checking", 1u << VERSION_READY | 1u << VERSION_FAILED},
	[VERSION_READY] = {"ready", 1u << VERSION_RETIRING},
	[VERSION_RETIRING] = {"retiring", 1u << VERSION_FREED},
	[VERSION_FREED] = {"freed", 0},
	[VERSION_FAILED] = {"failed", 0},
};

const char *version_state_name(enum version_state state)
{
	return states[state].name;
}

void version_move(struct version *version, enum version_state state)
{
	assert(states[version->state].next & 1u << state);
	version->state = state;
}

/* ---- content ---- */

const struct replica *version_rank(const struct version *version, uint32_t rank)
{
	const struct replica *part = version->replicas;

	while (part->rank != rank)
		part++;
	return part;
}

bool version_has_content_of(const struct version *version, const struct version *other)
{
	uint32_t rank = 0;

	while (version->world == other->world && rank < version->world &&
	       digest_equal(&version_rank(version, rank)->content, &version_rank(other, rank)->content))
		rank++;
	return rank == version->world;
}

/* ---- what is counted ---- */

void segment_count_hold(struct registry_counts *counts, const struct segment *segment)
{
	if (segment_is_shared(segment)) {
		counts->shared_bytes += segment->holds->next->next ? 0 : segment->bytes;
		return;
	}
	counts->segments++;
	counts->fds++;
	counts->bytes += segment->bytes;
}

void version_count(struct version *version, const struct replica *replica)
{
	struct registry_counts *counts = &version->model->registry->counts;
	struct version_record *record = record_of(version);

	record->fds++;
	record->index_bytes += replica->index.bytes;
	counts->fds++;
	counts->index_bytes += replica->index.bytes;
	for (uint32_t i = 0; i < replica->segment_count; i++)
		segment_count_hold(counts, replica->segments[i].segment);
	counts->host_copies += replica->spares != NULL;
	for (uint32_t i = 0; i < replica->spare_count; i++)
		segment_count_hold(counts, replica->spares[i].segment);
}

static void let_go(struct version_record *record, struct segment_hold *hold)
{
	bool shared = segment_is_shared(hold->segment);

	if (!hold->link)
		return;
	segment_let_go(hold);
	if (shared && !segment_is_shared(hold->segment))
		record->version.model->registry->counts.shared_bytes -= hold->segment->bytes;
	if (!hold->last)
		return;
	record->segments++;
	record->fds++;
	record->bytes += hold->segment->bytes;
}

void version_let_go(struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct replica *replica = &version->replicas[i];

		for (uint32_t k = 0; k < replica->segment_count; k++)
			let_go(record_of(version), &replica->segments[k]);
		for (uint32_t k = 0; k < replica->spare_count; k++)
			let_go(record_of(version), &replica->spares[k]);
	}
}

void version_uncount(struct version *version)
{
	struct registry_counts *counts = &version->model->registry->counts;
	struct version_record *record = record_of(version);

	version_let_go(version);
	for (uint32_t i = 0; i < version->replica_count; i++)
		counts->host_copies -= version->replicas[i].spares != NULL;
	counts->segments -= record->segments;
	counts->fds -= record->fds;
	counts->bytes -= record->bytes;
	counts->index_bytes -= record->index_bytes;
	record->segments = record->fds = record->bytes = record->index_bytes = 0;
	counts->demoted -= !version_is_resident(version);
	version->tier = version->moving_to = ON_DEVICE;
}

/* ---- what its owner is charged with ---- */

static enum quota_kind quota_of(bool nameless)
{
	return nameless ? QUOTA_NAMELESS : QUOTA_VERSIONS;
}

int version_charges_begin(struct version_charges *charges, struct quota *quota, uid_t uid, bool nameless,
			  struct error *error)
{
	int r = quota_charge(quota, uid, quota_of(nameless), &charges->version, error);

	if (r == 0)
		r = quota_charge_amount(quota, uid, QUOTA_FDS, 0, &charges->fds, error);
	if (r == 0)
		r = quota_charge_amount(quota, uid, QUOTA_INDEX_BYTES, 0, &charges->index_bytes, error);
	if (r < 0)
		version_charges_end(charges);
	return r;
}

void version_charges_end(struct version_charges *charges)
{
	quota_release(&charges->version);
	quota_release(&charges->fds);
	quota_release(&charges->index_bytes);
}

int version_charge_part(struct version *version, uint64_t fds, uint64_t index_bytes, struct error *error)
{
	struct version_charges *charges = &record_of(version)->charges;
	uint64_t before = charges->fds.amount;
	int r = quota_grow(&charges->fds, fds, error);

	if (r < 0)
		return r;
	r = quota_grow(&charges->index_bytes, index_bytes, error);
	if (r < 0)
		quota_shrink(&charges->fds, before);
	return r;
}

void version_add_coming(const struct version *version, struct quota_coming *coming)
{
	const struct version_charges *charges = &((const struct version_record *)version)->charges;

	if (!charges->version.user)
		return;
	coming->versions++;
	coming->amounts[charges->version.kind]++;
	coming->amounts[QUOTA_FDS] += charges->fds.amount;
	coming->amounts[QUOTA_INDEX_BYTES] += charges->index_bytes.amount;
	for (uint32_t i = 0; i < version->replica_count; i++) {
		const struct replica *part = &version->replicas[i];

		for (uint32_t k = 0; k < part->segment_count; k++) {
			const struct segment_hold *hold = &part->segments[k];
			const bool alone = hold->segment->holds == hold && !hold->next;

			if (hold->last || alone)
				coming->amounts[QUOTA_BYTES] += hold->segment->charge.quota.amount;
		}
	}
}

int version_adopt_charges(struct version *version, struct quota *quota, struct error *error)
{
	struct version_record *record = record_of(version);
	struct version_charges *charges = &record->charges;
	uid_t uid = version->owner;
	uint64_t fds = 0;
	int r;

	if (version->by_operator)
		return 0;
	for (uint32_t i = 0; i < version->replica_count; i++)
		fds += version->replicas[i].segment_count + 1;
	r = quota_adopt(quota, uid, quota_of(version_is_nameless(version)), 1, &charges->version, error);
	if (r == 0)
		r = quota_adopt(quota, uid, QUOTA_FDS, fds, &charges->fds, error);
	if (r == 0)
		r = quota_adopt(quota, uid, QUOTA_INDEX_BYTES, record->index_bytes, &charges->index_bytes,
				error);
	/* The bytes of each segment, which no version of another owner holds. */
	for (uint32_t i = 0; r == 0 && i < version->replica_count; i++) {
		const struct replica *replica = &version->replicas[i];

		for (uint32_t k = 0; r == 0 && k < replica->segment_count; k++)
			r = budget_adopt_user(&replica->segments[k].segment->charge, quota, uid, error);
	}
	return r;
}

/* ---- replicas ---- */

const struct replica *version_replica(const struct version *version, uint32_t rank, const struct device *device)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (version->replicas[i].rank == rank && version->replicas[i].device == device)
			return &version->replicas[i];
	}
	return NULL;
}

static int check_replica(const struct version *version, uint32_t rank, const struct device *device,
			 struct error *error)
{
	const char *model = version->model->name;

	if (rank >= version->world)
		return error_set(error, -EINVAL, NULL, "rank %u of %s@%s, whose world is %u", rank, model,
				 version->tag, version->world);
	if (version->replica_count == PARTS_PER_VERSION_MAX)
		return error_set(error, -EDQUOT, NULL, "%s@%s has %u parts, the most that a version may have",
				 model, version->tag, PARTS_PER_VERSION_MAX);
	if (version_replica(version, rank, device))
		return error_set(error, -EEXIST, NULL, "rank %u of %s@%s is on %s already", rank, model,
				 version->tag, device->id);
	return 0;
}

/* Another replica, empty so far; the first one's room came with the version. NULL: out of memory. */
static struct replica *append_replica(struct version *version)
{
	uint32_t count = version->replica_count;
	struct replica *replicas = version->replicas;

	if (count > 0)
		replicas = reallocarray(replicas, count + 1, sizeof(*replicas));
	if (!replicas)
		return NULL;
	version->replicas = replicas;
	version->replica_count++;
	return &replicas[count];
}

int version_add_replica(struct version *version, uint32_t rank, struct device *device,
			struct budget_charge *charge, uint32_t *ret_position, struct error *error)
{
	struct replica *replica;
	int r;

	if (version->state != VERSION_BUILDING)
		return error_set(error, -EBUSY, "all parts begin before the last one commits",
				 "%s@%s is %s, no longer building", version->model->name, version->tag,
				 version_state_name(version->state));
	r = check_replica(version, rank, device, error);
	if (r < 0)
		return r;
	replica = append_replica(version);
	if (!replica)
		return out_of_memory(error);
	*replica = (struct replica){
		.rank = rank, .device = device, .lies_on = device, .index = {.fd = -1}, .charge = *charge};
	*charge = (struct budget_charge){0};
	*ret_position = version->replica_count - 1;
	return 0;
}

static void list_holds(const struct replica *replica, const struct segment_hold *holds, uint32_t count,
		       struct part *ret)
{
	ret->index = (struct part_fd){replica->index.fd, replica->index.bytes};
	ret->segment_count = count;
	for (uint32_t i = 0; i < count; i++)
		ret->segments[i] = (struct part_fd){holds[i].segment->fd, holds[i].segment->bytes};
}

void replica_list(const struct replica *replica, struct part *ret)
{
	list_holds(replica, replica->segments, replica->segment_count, ret);
}

void replica_list_copy(const struct replica *replica, struct part *ret)
{
	list_holds(replica, replica->spares, replica->spare_count, ret);
}

void replica_clear(struct replica *replica)
{
	for (uint32_t i = 0; i < replica->segment_count; i++)
		segment_drop(replica->segments[i].segment);
	free(replica->segments);
	replica->segments = NULL;
	replica->segment_count = 0;
	for (uint32_t i = 0; i < replica->spare_count; i++)
		segment_drop(replica->spares[i].segment);
	free(replica->spares);
	replica->spares = NULL;
	replica->spare_count = 0;
	free(replica->sizes);
	replica->sizes = NULL;
	free(replica->origins);
	replica->origins = NULL;
	budget_release(&replica->charge);
}

static int check_adopted(const struct version *version, const struct replica *like, struct error *error)
{
	const struct registry_counts *counts = &version->model->registry->counts;
	uint64_t fds = counts->fds + 1, sum;

	if (like->segment_count > PART_SEGMENTS_MAX)
		return error_set(error, -EDQUOT, NULL, "%u segments; a part has at most %u",
				 like->segment_count, PART_SEGMENTS_MAX);
	for (uint32_t i = 0; i < like->segment_count; i++)
		fds += !like->segments[i].segment->holds;
	for (uint32_t i = 0; i < like->spare_count; i++)
		fds += !like->spares[i].segment->holds;
	if (fds > STORE_FDS_MAX)
		return error_set(error, -EDQUOT, NULL, "more than %u descriptors", STORE_FDS_MAX);
	if (like->index.bytes > INDICES_BYTES_MAX - counts->index_bytes)
		return error_set(error, -EDQUOT, NULL, "more than %llu bytes of indices",
				 (unsigned long long)INDICES_BYTES_MAX);
	if (__builtin_add_overflow(counts->bytes, like->bytes, &sum))
		return error_set(error, -EDQUOT, NULL, "more bytes than 64 bits can count");
	return check_replica(version, like->rank, like->device, error);
}

/* Charges `device` with the segments that no version holds yet. */
static void adopt_holds(struct version *version, struct segment_hold *holds, uint32_t count,
			struct device *device)
{
	for (uint32_t i = 0; i < count; i++) {
		struct segment *segment = holds[i].segment;

		if (!segment->holds)
			budget_adopt(device, segment->bytes, &segment->charge);
		segment_hold(&holds[i], segment, version);
	}
}

int version_adopt_replica(struct version *version, struct replica *like, struct error *error)
{
	struct replica *replica;
	int r = check_adopted(version, like, error);

	if (r < 0)
		return r;
	replica = append_replica(version);
	if (!replica)
		return out_of_memory(error);
	*replica = *like;
	replica->committed = replica->checked = true;
	if (!replica->lies_on && tier_has_memory(version->tier))
		replica->lies_on = replica->device;
	replica->promised = like->content;
	adopt_holds(version, replica->segments, replica->segment_count, replica->lies_on);
	adopt_holds(version, replica->spares, replica->spare_count, replica->spares_on);
	for (uint32_t i = 0; i < replica->spare_count; i++)
		replica->spares[i].spare = true;
	version_count(version, replica);
	like->segments = like->spares = NULL;
	like->sizes = NULL;
	like->origins = NULL;
	return 0;
}

/* ---- origins ---- */

struct origin replica_origin(const struct version *version, const struct replica *replica, uint32_t segment)
{
	return replica->origins ? replica->origins[segment]
				: (struct origin){.version = version->id, .segment = segment};
}

bool origin_equal(const struct origin *a, const struct origin *b)
{
	return a->segment == b->segment && version_id_equal(&a->version, &b->version);
}

static bool is_among(const struct segment_hold *hold, const struct segment_hold *list, uint32_t count)
{
	return hold >= list && hold < list + count;
}

uint64_t version_host_copy_bytes(const struct version *version)
{
	uint64_t bytes = 0;

	for (uint32_t i = 0; i < version->replica_count; i++)
		bytes += version->replicas[i].spares ? version->replicas[i].bytes : 0;
	return bytes;
}

const struct replica *segment_hold_part(const struct segment_hold *hold)
{
	const struct version *version = hold->version;
	uint32_t i = 0;

	while (!is_among(hold, version->replicas[i].segments, version->replicas[i].segment_count) &&
	       !is_among(hold, version->replicas[i].spares, version->replicas[i].spare_count))
		i++;
	return &version->replicas[i];
}

bool version_has_all(const struct version *version, uint64_t ranks)
{
	static_assert(PARTS_PER_VERSION_MAX <= 64, "a rank has no bit");
	return ranks == UINT64_MAX >> (64 - version->world);
}

bool version_committed(const struct version *version)
{
	uint64_t ranks = 0;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!version->replicas[i].committed)
			return false;
		ranks |= UINT64_C(1) << version->replicas[i].rank;
	}
	return version_has_all(version, ranks);
}

bool version_complete(const struct version *version)
{
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!version->replicas[i].checked)
			return false;
	}
	return version_committed(version);
}

/* ---- pins ---- */

static uint32_t pin_position(const struct version *version, const char *pin)
{
	uint32_t i = 0;

	while (i < version->pin_count && strcmp(version->pins[i], pin) != 0)
		i++;
	return i;
}

static int add_pin(struct version *version, const char *pin, struct error *error)
{
	const char *model = version->model->name, *wrong = name_wrong(pin);
	char(*pins)[NAME_BYTES_MAX + 1];

	if (wrong)
		return error_set(error, -EINVAL, NULL, "the pin's name %s", wrong);
	if (pin_position(version, pin) < version->pin_count)
		return error_set(error, -EEXIST, NULL, "%s@%s has a pin \"%s\" already", model, version->tag,
				 pin);
	if (version->pin_count == PINS_PER_VERSION_MAX)
		return error_set(error, -EDQUOT, "unpin some", "%s@%s has %u pins, the most that it may have",
				 model, version->tag, PINS_PER_VERSION_MAX);
	pins = reallocarray(version->pins, version->pin_count + 1, sizeof(*pins));
	if (!pins)
		return out_of_memory(error);
	snprintf(pins[version->pin_count], sizeof(*pins), "%s", pin);
	version->pins = pins;
	version->pin_count++;
	version->model->registry->counts.pins++;
	return 0;
}

int version_pin(struct version *version, const char *pin, struct error *error)
{
	if (version->state != VERSION_READY)
		return error_set(error, -EINVAL, "only ready versions take new pins", "%s@%s is %s",
				 version->model->name, version->tag, version_state_name(version->state));
	return add_pin(version, pin, error);
}

int version_adopt_pin(struct version *version, const char *pin, struct error *error)
{
	return add_pin(version, pin, error);
}

int version_unpin(struct version *version, const char *pin, struct error *error)
{
	uint32_t position = pin_position(version, pin);

	if (position == version->pin_count)
		return error_set(error, -ENOENT, NULL, "%s@%s has no pin \"%s\"", version->model->name,
				 version->tag, pin);
	version->pin_count--;
	version->model->registry->counts.pins--;
	memmove(version->pins + position, version->pins + position + 1,
		(version->pin_count - position) * sizeof(*version->pins));
	return 0;
}

int version_check_unpinned(const struct version *version, struct error *error)
{
	char names[TEXT_BYTES_MAX + 1] = "unpin first: ";
	size_t used = strlen(names);

	if (version->pin_count == 0)
		return 0;
	for (uint32_t i = 0; i < version->pin_count && used < sizeof(names); i++)
		used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
					 version->pins[i]);
	return error_set(error, -EBUSY, names, "%s@%s has %u pin%s", version->model->name, version->tag,
			 version->pin_count, version->pin_count == 1 ? "" : "s");
}

/* ---- need ---- */

bool version_unwanted(const struct version *version)
{
	bool ends = version->state == VERSION_RETIRING ||
		    (version_is_nameless(version) && version->state == VERSION_READY);

	return ends && version->lease_count == 0 && version->pin_count == 0;
}

bool version_unused(const struct version *version)
{
	return version_unwanted(version) && version->readers == 0;
}
