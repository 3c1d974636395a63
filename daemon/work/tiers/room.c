#include "room.h"
#include "../loaders/loader.h"
#include "moves.h"
#include "../../ledger/registry.h"
#include "../../net/session.h"
#include "../versions/leases.h"
#include "../work.h"
#include "../../../base/bytes.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define COMES_BYTES 640 /* five of the phrases below */
#define MAPPERS_BYTES 320 /* a phrase with a name, or with three processes */

/* Of a device's budget, in bytes. */
struct shares {
	uint64_t kept; /* by versions and regions that stay, and by moves to other tiers */
	uint64_t retiring; /* by versions that wait for their last lease or pin */
	uint64_t ended; /* by regions that have ended, and still have users */
};

static void shares_add(struct shares *shares, bool stays, uint64_t bytes)
{
	if (stays)
		shares->kept += bytes;
	else
		shares->retiring += bytes;
}

/* A segment stays as long as one version stays that holds it. */
static bool segment_stays(const struct segment *segment)
{
	const struct segment_hold *hold = segment->holds;

	while (hold && hold->version->state == VERSION_RETIRING)
		hold = hold->next;
	return hold;
}

/* A segment counts with the first that holds it. */
static void shares_add_holds(struct shares *shares, const struct segment_hold *holds, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		const struct segment *segment = holds[i].segment;

		if (segment->holds == &holds[i])
			shares_add(shares, segment_stays(segment), segment->charge.bytes);
	}
}

static void shares_add_version(struct shares *shares, const struct version *version,
			       const struct device *device)
{
	for (uint32_t i = 0; i < version->replica_count && !version->freeing; i++) {
		const struct replica *part = &version->replicas[i];

		if (part->spares_on == device)
			shares_add_holds(shares, part->spares, part->spare_count);
		if (part->lies_on != device)
			continue;
		shares_add(shares, version->state != VERSION_RETIRING, part->charge.bytes);
		shares_add_holds(shares, part->segments, part->segment_count);
	}
}

static void add_text(char text[COMES_BYTES], uint64_t bytes, const char *what)
{
	size_t used = strlen(text);
	char amount[BYTES_TEXT];

	if (bytes > 0)
		snprintf(text + used, COMES_BYTES - used, "%s %s %s", used ? "," : "",
			 bytes_format(bytes, amount), what);
}

static struct shares shares_of(const struct work *work, const struct device *device)
{
	struct version *version = NULL;
	struct shares shares = {.kept = moves_held(work, device)};

	while ((version = registry_next_version(work->ledger->registry, NULL, version)))
		shares_add_version(&shares, version, device);
	for (const struct region *region = work->ledger->regions.first; region; region = region->next) {
		if (region->is.device != device || !region->memory_charge)
			continue;
		if (region->state != REGION_ENDED)
			shares.kept += region->is.memory_bytes;
		else if (!region_is_unused(region))
			shares.ended += region->is.memory_bytes;
	}
	/* An idle copy ends as soon as somebody waits for room (copies_give_way), so it counts as memory that is being freed. */
	for (const struct ipc_copy *copy = work->ledger->copies.first; copy; copy = copy->next) {
		if (ipc_copy_device(copy) != device || copy->lease_count == 0)
			continue;
		shares.kept += copy->bytes;
		if (copy->state == COPY_READY) /* until then it is one of the contexts of jobs */
			shares.kept += device->context;
	}
	return shares;
}

static uint64_t being_freed(const struct device *device, const struct shares *shares)
{
	uint64_t known = device->contexts + device->still_mapped + device->rooms + shares->kept +
			 shares->retiring + shares->ended;

	return device->used > known ? device->used - known : 0;
}

uint64_t room_being_freed(const struct work *work, const struct device *device)
{
	struct shares shares = shares_of(work, device);

	return being_freed(device, &shares);
}

/* Says that regions are in the way, and whose the largest one is. */
static void name_regions(const struct work *work, const struct device *device, char text[MAPPERS_BYTES])
{
	const struct region *largest = NULL;
	char all[BYTES_TEXT], one[BYTES_TEXT], id[VERSION_ID_TEXT];
	uint64_t bytes = 0;

	for (const struct region *region = work->ledger->regions.first; region; region = region->next) {
		if (region->is.device != device || !region->memory_charge || region->state == REGION_ENDED)
			continue;
		bytes += region->is.memory_bytes;
		if (!largest || region->is.memory_bytes > largest->is.memory_bytes)
			largest = region;
	}
	if (!largest)
		return;
	hex128_format(largest->id.bytes, id);
	snprintf(
		text, MAPPERS_BYTES,
		", or end regions, which have %s, the largest one %s: gpuwmctl regions --remove %s (of uid %u)",
		bytes_format(bytes, all), bytes_format(largest->is.memory_bytes, one),
		largest->name[0] ? largest->name : id, (unsigned)largest->is.uid);
}

/* Says that rooms of leases are in the way, and whose the largest one is. */
static void name_rooms(const struct work *work, const struct device *device, char text[MAPPERS_BYTES])
{
	const struct lease *largest = NULL;
	char all[BYTES_TEXT], one[BYTES_TEXT];
	struct version *version = NULL;

	while ((version = registry_next_version(work->ledger->registry, NULL, version))) {
		for (const struct lease *lease = version->leases; lease; lease = lease->next_of_version) {
			if (lease_device(lease) == device &&
			    lease_room_bytes(lease) > (largest ? lease_room_bytes(largest) : 0))
				largest = lease;
		}
	}
	if (!largest)
		return;
	snprintf(text, MAPPERS_BYTES,
		 ", or end what workers take besides versions, %s, the most %s: gpuwmctl kick %llu (of uid %u)",
		 bytes_format(device->rooms, all), bytes_format(lease_room_bytes(largest), one),
		 (unsigned long long)largest->id,
		 (unsigned)((const struct session *)largest->holder)->peer.uid);
}

void room_explain(const struct work *work, const struct device *device, uint64_t bytes, bool to_operator,
		  struct error *error)
{
	char comes[COMES_BYTES] = "",
	     ended[MAPPERS_BYTES] = "of regions that have ended when their users have gone";
	char revoked[MAPPERS_BYTES] = "of revoked leases when their processes have unmapped it or exited";
	char regions[MAPPERS_BYTES] = "", rooms[MAPPERS_BYTES] = "", detail[TEXT_BYTES_MAX + 1];
	struct shares shares = shares_of(work, device);

	/* Else the refusal did not count them. */
	if (budget_check_with_context(device, bytes, NULL) == 0)
		add_text(comes, device->contexts, "of CUDA contexts when running jobs have ended");
	add_text(comes, shares.retiring, "of retiring versions when their leases and pins are gone");
	if (to_operator)
		region_name_mappers(&work->ledger->regions, device, ended, sizeof(ended));
	add_text(comes, shares.ended, ended);
	if (to_operator)
		revoked_name_mappers(work, device, revoked, sizeof(revoked));
	add_text(comes, device->still_mapped, revoked);
	add_text(comes, being_freed(device, &shares), "that is being freed");
	if (to_operator) {
		name_regions(work, device, regions);
		name_rooms(work, device, rooms);
	}
	if (!comes[0] && !regions[0] && !rooms[0])
		return;
	snprintf(detail, sizeof(detail), "%.300s%s%s%s%s", error->detail, regions, rooms,
		 comes[0] ? ", or wait for what comes back:" : "", comes);
	error_set(error, error->code, detail, "%s", error->message);
}

/* ---- what will be granted ---- */

/* Whether `asked` fits once `going` of what is used has gone. */
static bool fits_without(const struct device *device, uint64_t asked, uint64_t going)
{
	uint64_t lasting = device->used - (going < device->used ? going : device->used);

	return lasting <= device->budget && asked <= device->budget - lasting;
}

enum room_wait room_wait(const struct work *work, const struct device *device, uint64_t bytes, uint64_t beside,
			 const struct loader *loader)
{
	uint64_t passing, freed, asked;

	/* Contexts that are in the way now will be gone. */
	if (budget_check_with_context(device, bytes, NULL) == 0 &&
	    !__builtin_add_overflow(bytes, beside, &asked)) {
		passing = loader_pool_passing(work->loaders, device, loader);
		if (passing > 0 && fits_without(device, asked, passing))
			return ROOM_CONTEXTS;
	}
	/* So will what was given up, by a builder that died among others: its successor comes at once. */
	freed = room_being_freed(work, device);
	if (freed > 0 && !__builtin_add_overflow(bytes, device->context, &asked) &&
	    fits_without(device, asked, device->contexts + freed))
		return ROOM_FREED;
	return ROOM_NEVER;
}

/* The context is charged when the job starts, which waits for contexts of other loaders and for nothing else. */
int room_check_load(const struct work *work, const struct device *device, uint64_t bytes, struct error *error)
{
	int r = budget_check_context(device, error);

	if (r == -ENOSPC) {
		room_explain(work, device, 0, true, error);
		return r;
	}
	r = budget_check_with_context(device, bytes, error);
	if (r == 0)
		r = budget_check(device, bytes + device->context, error);
	if (r == 0 || room_wait(work, device, bytes, device->context, NULL) != ROOM_NEVER)
		return 0;
	room_explain(work, device, bytes, true, error);
	return r;
}
