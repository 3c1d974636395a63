/* Mutates snapshots that are valid and takes them: fuzz_snapshot [iterations [seed]].
 * Build it with the sanitizers. What is refused must have taken no descriptor and name a reason; what is
 * accepted must be a ledger that can be put, and comes back the same. */
#include "../../daemon/ledger/registry_internal.h"
#include "../../daemon/restart/snapshot.h"
#include "fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SEEDS 5
#define ROOM 16384

static struct {
	char bytes[ROOM];
	size_t count;
} seeds[SEEDS];

/* ---- seeds ---- */

static void add_device(struct device_table *table, const char *id, bool is_cuda)
{
	struct device device = {.name = "a device",
				.kind = is_cuda ? &kind_cuda : &kind_host,
				.total = GIB(80),
				.granularity = 4096};

	snprintf(device.id, sizeof(device.id), "%s", id);
	must(device_table_report(table, &device, 1) == 0, "no device");
}

/* A segment that versions of operators have in common, by device. */
static struct segment *common[2];

static struct segment *add_segment(const struct version *version, uint32_t rank, uint32_t position,
				   uint64_t *name)
{
	struct segment **shared = &common[rank % 2], *segment;

	if (version->by_operator && rank < 2 && position == 0 && *shared)
		return *shared;
	segment = segment_new(7, MIB(300), (*name)++);
	must(segment, "out of memory");
	if (version->by_operator && rank < 2 && position == 0)
		*shared = segment;
	return segment;
}

static void add_part(struct version *version, uint32_t rank, struct device *device, uint32_t segments,
		     uint64_t *name)
{
	struct replica part = {.rank = rank, .device = device, .index = {7, 4096, (*name)++}, .tensors = 9};

	part.segments = calloc(segments + 1, sizeof(*part.segments));
	must(part.segments, "out of memory");
	for (uint32_t i = 0; i < segments; i++) {
		part.segments[i].segment = add_segment(version, rank, i, name);
		part.bytes += MIB(300);
	}
	part.segment_count = segments;
	part.content.bytes[0] = (uint8_t)*name;
	must(version_adopt_replica(version, &part, NULL) == 0, "no part");
}

static const struct error damage = {.code = -EBADMSG, .message = "tensor w has the digest 12, not 34"};

/* Leases of two users by number, and all of another one's. */
static void add_kicked(struct version *version, unsigned number)
{
	for (unsigned i = 0; i < number % 4; i++)
		must(version_revoke_id(version, 1000 + i % 2, 100 * number + i, NULL) == 0, "no kicked lease");
	if (number % 2)
		must(version_revoke_user(version, 1003, 50 * number, NULL) == 0, "no kicked user");
}

static struct version *add_version(struct snapshot *snapshot, const char *model, unsigned number,
				   uint32_t world, enum version_state as)
{
	struct version like = {.id = {{1, (uint8_t)number}},
			       .publish = {{2, (uint8_t)number}},
			       .state = as,
			       .world = world,
			       .owner = 1000 + number % 3,
			       .by_operator = number % 2 == 0,
			       .joiners = number % 2 ? &(struct joiners){.uid_count = 1, .uids = {1001}} : NULL,
			       .created_ms = 1700000000000,
			       .ready_ms = 1700000000001};
	struct version *version;

	snprintf(like.tag, sizeof(like.tag), "v%u", number);
	if (number == 2)
		error_set(&like.error, -EEXIST, "a detail", "the alias was not moved");
	must(registry_adopt(snapshot->registry, model, &like, &version, NULL) == 0, "no version");
	if (number == 3)
		version_taint(version, &damage);
	add_kicked(version, number);
	for (uint32_t rank = 0; rank < world; rank++)
		add_part(version, rank, snapshot->devices->devices[rank % 2], number % 3, &snapshot->next_name);
	return version;
}

static void add_claim(struct snapshot *snapshot, unsigned number)
{
	struct ref name = {.model = "llama"};

	snprintf(name.name, sizeof(name.name), "next%u", number);
	must(claim_reserve(snapshot->claims, &name, snapshot->quota, 1000 + number % 2, NULL) == 0, "no claim");
}

static void add_versions(struct snapshot *snapshot, unsigned count)
{
	for (unsigned i = 1; i <= count; i++) {
		struct version *version = add_version(snapshot, i % 2 ? "llama" : "qwen", i, 1 + i % 3,
						      i == 4 ? VERSION_RETIRING : VERSION_READY);
		if (i < 3) {
			must(registry_adopt_alias(snapshot->registry, version, "current", i, NULL) == 0,
			     "no alias");
			must(registry_adopt_alias(snapshot->registry, version, "prod", 1, NULL) == 0,
			     "no alias");
		}
		must(version_adopt_pin(version, "night", NULL) == 0, "no pin");
		must(version_adopt_pin(version, "day", NULL) == 0, "no pin");
	}
}

static struct region_wish region_wish(const struct snapshot *snapshot, unsigned number)
{
	struct region_wish wish = {.name = number % 2 ? "kv" : NULL,
				   .device = snapshot->devices->devices[number % 2],
				   .uid = 1000 + number % 2,
				   .many_writers = true,
				   .owned_by_uid = true,
				   .bytes = 4096,
				   .memory_bytes = 4096};

	switch (number % 4) {
	case 0:
		wish.kind = &region_kind_queue;
		wish.item_bytes = 64;
		break;
	case 1:
		wish.kind = &region_kind_pool;
		wish.shape.chunks = 16;
		break;
	case 2:
		wish.kind = &region_kind_blocks;
		wish.shape.blocks = 8;
		wish.block_bytes = 512;
		break;
	default:
		wish.kind = &region_kind_scratch;
		wish.clear = true;
		break;
	}
	return wish;
}

/* Of each kind, with users. Scratch memory has a holder. */
static void add_region(struct snapshot *snapshot, unsigned number)
{
	const struct region_wish wish = region_wish(snapshot, number);
	const struct version_id id = {{4, (uint8_t)number}};
	struct region *region;

	must(region_adopt(snapshot->regions, &wish, &id, &region, NULL) == 0, "no region");
	region->state = REGION_READY;
	if (number == 1)
		region_end(region, CONTROL_OWNER_DIED, 3, &(struct error){-EOWNERDEAD, "its owner exited", ""});
	else
		region->memory_stored_as = snapshot->next_name++;
	region->control_stored_as = snapshot->next_name++;
	for (unsigned slot = 0; slot < number; slot++) {
		const struct region_user like = {.slot = slot,
						 .use = {{5, (uint8_t)number, (uint8_t)slot}},
						 .uid = 1000,
						 .pid = 9,
						 .command = "worker",
						 .pidfd = -1,
						 .stored_as = snapshot->next_name++,
						 .state = USER_HERE};
		struct region_user *user;

		must(region_user_adopt(snapshot->regions, region, &like, &user, NULL) == 0, "no user");
		if (wish.kind == &region_kind_scratch && !region_scratch_holder(region)) {
			region->scratch.written_by = id;
			region_scratch_give(user);
		}
	}
}

/* With more versions, parts, pins, aliases, claims and regions the greater the seed. */
static void write_seed(unsigned seed)
{
	struct device_table devices = {0};
	struct region_table regions;
	struct snapshot snapshot = {
		.ledger = {{3}}, .epoch = 9, .next_name = 1, .devices = &devices, .regions = &regions};
	struct message_writer w;

	common[0] = common[1] = NULL;
	region_table_init(&regions);
	snapshot.registry = registry_new();
	snapshot.claims = claim_table_new();
	snapshot.quota = quota_new(&quota_defaults);
	must(snapshot.registry && snapshot.claims && snapshot.quota, "out of memory");
	for (unsigned i = 0; i < seed; i++)
		add_claim(&snapshot, i);
	add_device(&devices, "host", false);
	add_device(&devices, "GPU-01234567-89ab-cdef-0123-456789abcdef", true);
	add_versions(&snapshot, 2 * seed);
	for (unsigned i = 1; i <= seed && i < 5; i++)
		add_region(&snapshot, i);
	message_writer_init(&w, ROOM);
	snapshot_put(&w, &snapshot);
	must(message_finish(&w) == 0, "a seed could not be put");
	memcpy(seeds[seed].bytes, w.buffer.data, w.buffer.size);
	seeds[seed].count = w.buffer.size;
	message_writer_clear(&w);
	region_table_clear(&regions);
	registry_free(snapshot.registry);
	claim_table_free(snapshot.claims);
	quota_free(snapshot.quota);
	device_table_clear(&devices);
}

/* ---- mutations ---- */

static size_t mutate(char *bytes, size_t count)
{
	size_t at = draw(count), from = draw(count), length;

	switch (draw(7)) {
	case 0: /* flip a bit */
		bytes[at] = (char)(bytes[at] ^ 1 << draw(8));
		return count;
	case 1: /* another digit, letter or small number */
		bytes[at] = (char)(draw(2) ? '0' + draw(10) : draw(3));
		return count;
	case 2: /* a number that matters */
		length = 1 + draw(8);
		if (at + length < count)
			memset(bytes + at, draw(2) ? 0xff : 0, length);
		return count;
	case 3: /* what stands elsewhere: the same id, name, key */
		length = 1 + draw(40);
		if (at + length < count && from + length < count)
			memmove(bytes + at, bytes + from, length);
		return count;
	case 4: /* cut */
		return draw(16) ? count : at + 1;
	case 5: /* leave something out */
		length = draw(1 + (count - at < 8 ? count - at : 8));
		memmove(bytes + at, bytes + at + length, count - at - length);
		return count - length > 0 ? count - length : 1;
	default: /* say something twice */
		length = draw(1 + (count - at < 32 ? count - at : 32));
		if (count + length > ROOM)
			return count;
		memmove(bytes + at + length, bytes + at, count - at);
		return count + length;
	}
}

/* Also exactly one value: the last digit of an id, a name, a rank or a size. */
static size_t mutate_one(char *bytes, size_t count)
{
	static const char *const keys[] = {"name",   "bytes",  "rank",    "world", "model",      "tag",   "id",
					   "kind",   "state",  "version", "owner", "generation", "index", "uid",
					   "all_to", "leases", "regions", "users", "slot"};
	const char *key = keys[draw(sizeof(keys) / sizeof(keys[0]))];
	char *at = memmem(bytes, count, key, strlen(key));

	for (uint64_t skip = draw(8); at && skip > 0; skip--) {
		char *next = memmem(at + 1, count - (size_t)(at + 1 - bytes), key, strlen(key));
		at = next ? next : at;
	}
	if (!at)
		return count;
	at += strlen(key) + draw(3);
	if (at < bytes + count)
		*at = (char)(draw(2) ? *at + 1 - (char)draw(3) : (char)draw(256));
	return count;
}

/* ---- taking ---- */

struct store {
	uint64_t missing; /* every so many-th name; 0: none */
	uint64_t taken;
};

static bool have(void *data, uint64_t name)
{
	const struct store *store = data;

	return store->missing == 0 || name % store->missing != 0;
}

static int look(void *data, uint64_t name, int seals, uint64_t bytes)
{
	(void)seals, (void)bytes;
	if (have(data, name))
		return SNAPSHOT_FD_HERE;
	return name % 2 ? SNAPSHOT_FD_MISSING : SNAPSHOT_FD_OTHER;
}

static int take(void *data, uint64_t name)
{
	struct store *store = data;

	must(have(data, name), "took what is not there");
	store->taken++;
	return (int)(name % 1000) + 1000;
}

static uint64_t charged(const struct device_table *devices)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < devices->count; i++)
		sum += devices->devices[i]->used;
	return sum;
}

struct ledger {
	struct device_table devices;
	struct region_table regions;
	struct snapshot snapshot;
	struct unread_records unread;
	struct store store;
	uint64_t lost;
};

/* From an exact copy on the heap, so that a sanitizer sees one byte too far. */
static bool ledger_take(struct ledger *l, const char *bytes, size_t count, uint64_t missing)
{
	const struct snapshot_fds fds = {.look = look, .take = take, .data = &l->store};
	struct error error = {0};
	char *copy = malloc(count);
	int r;

	*l = (struct ledger){.store = {.missing = missing}};
	region_table_init(&l->regions);
	l->snapshot = (struct snapshot){.registry = registry_new(),
					.devices = &l->devices,
					.claims = claim_table_new(),
					.regions = &l->regions,
					.quota = quota_new(&quota_defaults),
					.unread = &l->unread};
	must(copy && l->snapshot.registry && l->snapshot.claims && l->snapshot.quota, "out of memory");
	memcpy(copy, bytes, count);
	r = snapshot_take(&(struct snapshot_stored){copy, count, 1}, &fds, &l->snapshot, &l->lost, &error);
	free(copy);
	must(r == 0 || (r == -EUCLEAN && error.code == r && error.message[0]), "an error other than EUCLEAN");
	must(r == 0 || l->store.taken == 0, "descriptors were taken of what is refused");
	return r == 0;
}

static void ledger_free(struct ledger *l)
{
	region_table_clear(&l->regions);
	registry_free(l->snapshot.registry);
	claim_table_free(l->snapshot.claims);
	must(!quota_next_user(l->snapshot.quota, NULL), "a user stays charged");
	quota_free(l->snapshot.quota);
	must(charged(&l->devices) == 0, "bytes stay charged");
	device_table_clear(&l->devices);
	unread_records_clear(&l->unread);
}

static void ledger_put(const struct ledger *l, struct message_writer *w)
{
	message_writer_init(w, MESSAGE_BODY_MAX);
	snapshot_put(w, &l->snapshot);
	must(message_finish(w) == 0, "what was accepted can't be put");
}

/* Of those that were adopted. */
static uint64_t region_bytes(const struct region_table *table)
{
	uint64_t sum = 0;

	for (const struct region *region = table->first; region; region = region->next)
		sum += region->memory_charge ? region->is.memory_bytes : 0;
	return sum;
}

static void check(const struct ledger *l)
{
	struct registry_counts counts = registry_counts(l->snapshot.registry);
	struct message_writer before, after;
	struct ledger again;

	must(registry_fds(l->snapshot.registry) == l->store.taken && l->store.taken <= STORE_FDS_MAX,
	     "a wrong count of descriptors");
	must(counts.bytes + region_bytes(&l->regions) == charged(&l->devices), "a wrong charge");
	ledger_put(l, &before);
	must(ledger_take(&again, before.buffer.data, before.buffer.size, l->store.missing),
	     "what was put is refused");
	/* A record that could not be read may be lost or read once what it contradicted is gone. */
	must(again.lost == 0 || l->unread.count > 0, "what was there is lost");
	must(again.unread.count <= l->unread.count, "what was there can't be read");
	ledger_put(&again, &after);
	must(l->unread.count > 0 || (before.buffer.size == after.buffer.size &&
				     memcmp(before.buffer.data, after.buffer.data, after.buffer.size) == 0),
	     "what was put came back otherwise");
	message_writer_clear(&before);
	message_writer_clear(&after);
	ledger_free(&again);
}

static bool run(const char *bytes, size_t count, uint64_t missing)
{
	struct ledger l;
	bool accepted = ledger_take(&l, bytes, count, missing);

	if (accepted)
		check(&l);
	ledger_free(&l);
	return accepted;
}

int main(int argc, char **argv)
{
	uint64_t iterations = fuzz_begin(argc, argv, 100000), accepted = 0;
	char bytes[ROOM];

	for (unsigned i = 0; i < SEEDS; i++) {
		write_seed(i);
		must(run(seeds[i].bytes, seeds[i].count, 0), "a seed was refused");
	}
	for (uint64_t i = 0; i < iterations; i++) {
		size_t which = draw(SEEDS), count = seeds[which].count;
		bool one = draw(2);

		memcpy(bytes, seeds[which].bytes, count);
		for (uint64_t n = 1 + draw(one ? 2 : 4); n > 0; n--)
			count = one ? mutate_one(bytes, count) : mutate(bytes, count);
		accepted += run(bytes, count, draw(4) ? 0 : 2 + draw(5));
	}
	return fuzz_end(accepted, iterations);
}
