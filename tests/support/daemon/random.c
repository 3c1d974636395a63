#include "random.h"

#include "daemon/ledger/registry_internal.h"

const char *const models[MODELS] = {"a", "b", "c", "d"};
const char *const aliases[ALIASES] = {"current", "previous", "prod", "test"};
const char *const pins[PINS] = {"x", "y", "z"};

struct slot slots[SLOTS];
struct leased model_leases[LEASES];
struct model_alias named[MODELS][ALIASES];

static struct lease *held[HOLDERS];
unsigned user_leases[USERS], user_publishes[USERS];
uint64_t used[2], failures, forgotten, refused[3];
struct device *devices[2];
static uint64_t random_state;

static unsigned pick(unsigned below)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (unsigned)((random_state >> 11) % below);
}

const char *tag_of(unsigned slot)
{
	static char text[16];

	snprintf(text, sizeof(text), "v%u", slot % TAGS);
	return text;
}

#define foretold(call, expected) expect_code((call), (expected), #call)
static void expect_code(int code, int expected, const char *call)
{
	cr_assert_eq(code, expected, "%s gave %d, not %d: %s", call, code, expected, ledger.error.message);
	refused[0] += code == -ENOSPC;
	refused[1] += code == -EDQUOT;
	refused[2] += code == -EBUSY;
}

/* ---- publishes ---- */

static struct publish_request request_for(unsigned slot, unsigned rank, unsigned device, uint64_t bytes)
{
	return (struct publish_request){.model = models[slot / TAGS],
					.tag = tag_of(slot),
					.alias = "",
					.device = devices[device],
					.rank = rank,
					.world = slots[slot].world,
					.bytes = bytes,
					.publisher = &slots[slot],
					.uid = slots[slot].user};
}

static void add_part(struct slot *s, unsigned rank, unsigned device, uint64_t bytes)
{
	s->part[s->parts].rank = rank;
	s->part[s->parts].device = device;
	s->part[s->parts].granted = bytes;
	s->parts++;
	used[device] += bytes;
}

static void try_begin(unsigned slot)
{
	struct slot *s = &slots[slot], before = *s;
	unsigned device = pick(2), rank, expected = 0;
	uint64_t bytes = pick(100);
	struct publish_part *part;

	*s = (struct slot){.user = pick(USERS), .world = 1 + pick(2)};
	rank = pick(s->world + 1);
	struct publish_request request = request_for(slot, rank, device, bytes);
	if (rank == s->world)
		expected = EINVAL;
	else if (user_publishes[s->user] == PUBLISHES_PER_USER)
		expected = EDQUOT;
	else if (used[device] + bytes > BUDGET - BUDGET / 8) /* users' part */
		expected = ENOSPC;
	else if (before.there && before.state != VERSION_FAILED)
		expected = EEXIST;
	foretold(publish_begin(ledger.publishes, ledger.registry, ledger.quota, &request, &part, &ledger.error),
		 -(int)expected);
	if (expected) {
		*s = before;
		return;
	}
	s->there = true;
	s->publish = part->publish;
	s->version = part->publish->version;
	user_publishes[s->user]++;
	add_part(s, rank, device, bytes);
}

static void try_join(unsigned slot)
{
	struct slot *s = &slots[slot];
	unsigned device = pick(2), rank = pick(2), expected = 0;
	uint64_t bytes = pick(100);
	struct publish_request request = request_for(slot, rank, device, bytes);
	struct publish_part *part;

	if (!s->publish || s->parts == PARTS)
		return;
	for (unsigned i = 0; i < s->parts; i++) {
		if (s->part[i].rank == rank && s->part[i].device == device)
			expected = EEXIST;
	}
	if (rank >= s->world)
		expected = EINVAL;
	if (s->state != VERSION_BUILDING)
		expected = EBUSY;
	if (used[device] + bytes > BUDGET - BUDGET / 8) /* users' part */
		expected = ENOSPC;
	request.join = &s->publish->id;
	foretold(publish_begin(ledger.publishes, ledger.registry, ledger.quota, &request, &part, &ledger.error),
		 -(int)expected);
	if (!expected)
		add_part(s, rank, device, bytes);
}

static bool all_parts(const struct slot *s, bool checked)
{
	bool ranks[2] = {false, s->world == 1};

	for (unsigned i = 0; i < s->parts; i++) {
		ranks[s->part[i].rank] = true;
		if (!s->part[i].committed || (checked && !s->part[i].checked))
			return false;
	}
	return ranks[0] && ranks[1];
}

static struct publish_part *part_of(struct slot *s, unsigned position)
{
	return publish_part_find(s->publish, s->part[position].rank, devices[s->part[position].device]);
}

static void try_commit(unsigned slot)
{
	static const struct digest content = {{1}}, other = {{2}};
	struct slot *s = &slots[slot];
	unsigned i;

	if (!s->publish)
		return;
	i = pick(s->parts);
	if (pick(8) == 0)
		foretold(publish_commit(s->publish, part_of(s, i), &used, &content, &ledger.error),
			 s->part[i].committed ? 0 : -EACCES);
	if (pick(8) == 0 && (s->part[i].committed || s->part[i].checked))
		foretold(publish_commit(s->publish, part_of(s, i), s, &other, &ledger.error), -EBADMSG);
	foretold(publish_commit(s->publish, part_of(s, i), s, &content, &ledger.error), 0);
	s->part[i].committed = true;
	if (all_parts(s, false))
		s->state = VERSION_CHECKING;
}

static void try_check(unsigned slot)
{
	struct slot *s = &slots[slot];
	struct publish_checked checked = {.part.index = {.fd = 7, .bytes = 1}, .content = {{1}}};
	uint64_t bytes, *granted;
	unsigned i, expected = 0;

	if (!s->publish)
		return;
	i = pick(s->parts);
	granted = &s->part[i].granted;
	checked.part.segment_count = pick(3);
	for (unsigned k = 0; k < checked.part.segment_count; k++)
		checked.part.segments[k].bytes = pick((unsigned)*granted + 1);
	bytes = checked.part.segments[0].bytes + checked.part.segments[1].bytes;
	if (s->part[i].checked)
		expected = EEXIST;
	else if (bytes > *granted)
		expected = EBADMSG;
	s->part[i].segments += expected ? 0 : checked.part.segment_count;
	foretold(publish_checked(ledger.registry, s->publish, part_of(s, i), &checked, &ledger.error),
		 -(int)expected);
	if (expected)
		return;
	s->part[i].checked = true;
	used[s->part[i].device] -= *granted - bytes;
	*granted = bytes;
}

static void end_publish(struct slot *s)
{
	publish_end(ledger.publishes, s->publish);
	s->publish = NULL;
	user_publishes[s->user]--;
}

/* As the daemon does it: descriptors and charges are taken first. */
static void take_memory(struct slot *s)
{
	version_let_go(s->version);
	for (unsigned i = 0; i < s->parts; i++) {
		struct replica *replica = &s->version->replicas[i];

		replica_clear(replica);
		used[s->part[i].device] -= s->part[i].granted;
	}
}

static void try_ready(unsigned slot)
{
	struct slot *s = &slots[slot];
	unsigned model = slot / TAGS;
	bool takes = named[model][0].slot < 0, current = false;

	if (!s->publish)
		return;
	for (unsigned i = model * TAGS; i < (model + 1) * TAGS; i++)
		takes = takes && !(slots[i].there && slots[i].state == VERSION_READY);
	if (!all_parts(s, true)) {
		foretold(registry_ready(ledger.registry, s->version, &current, &ledger.error), -EINVAL);
		return;
	}
	foretold(registry_ready(ledger.registry, s->version, &current, &ledger.error), 0);
	cr_assert_eq(current, takes);
	s->state = VERSION_READY;
	if (takes) {
		named[model][0].slot = (int)slot;
		named[model][0].generation = 1;
	}
	end_publish(s);
}

static void forget_oldest(void)
{
	struct slot *oldest = NULL;
	unsigned count = 0;

	for (unsigned i = 0; i < SLOTS; i++) {
		if (!slots[i].there || slots[i].state != VERSION_FAILED)
			continue;
		count++;
		if (!oldest || slots[i].failed_as < oldest->failed_as)
			oldest = &slots[i];
	}
	if (count > FAILED_KEPT_MAX) {
		oldest->there = false;
		forgotten++;
	}
}

void try_fail(unsigned slot)
{
	struct slot *s = &slots[slot];
	struct error reason = {.code = -EIO};

	if (!s->publish)
		return;
	take_memory(s);
	end_publish(s);
	registry_fail(ledger.registry, s->version, &reason);
	s->state = VERSION_FAILED;
	s->failed_as = ++failures;
	forget_oldest();
}

/* ---- leases, pins ---- */

static void try_lease(unsigned slot)
{
	/* Few slots are ready: most tries are to find one. */
	for (int tries = 0; tries < 20 && !(slots[slot].there && slots[slot].state == VERSION_READY); tries++)
		slot = pick(SLOTS);
	struct slot *s = &slots[slot];
	unsigned i = pick(LEASES), holder = pick(HOLDERS), user = holder % USERS, expected = 0;

	if (!s->there || model_leases[i].lease)
		return;
	if (s->state != VERSION_READY)
		expected = EINVAL;
	else if (user_leases[user] == LEASES_PER_USER)
		expected = EDQUOT;
	foretold(lease_grant(ledger.registry, s->version, 0,
			     &(struct lease_holder){.holder = &held[holder],
						    .leases = &held[holder],
						    .quota = ledger.quota,
						    .uid = user},
			     &model_leases[i].lease, &ledger.error),
		 -(int)expected);
	if (expected)
		return;
	model_leases[i].id = model_leases[i].lease->id;
	model_leases[i].slot = slot;
	model_leases[i].holder = holder;
	s->leases++;
	user_leases[user]++;
}

void give_back(unsigned i)
{
	struct slot *s = &slots[model_leases[i].slot];

	cr_assert_eq(lease_release(ledger.registry, model_leases[i].lease), s->version);
	model_leases[i].lease = NULL;
	s->leases--;
	user_leases[model_leases[i].holder % USERS]--;
}

static void try_release(unsigned slot)
{
	unsigned i = pick(LEASES), holder = pick(HOLDERS);

	(void)slot;
	if (model_leases[i].id)
		cr_assert_eq(lease_find(ledger.registry, model_leases[i].id, &held[holder]),
			     model_leases[i].holder == holder ? model_leases[i].lease : NULL);
	if (model_leases[i].lease)
		give_back(i);
}

/* A session ends: all that it held goes. */
static void try_hang_up(unsigned slot)
{
	unsigned holder = pick(HOLDERS);

	if (pick(20) != 0)
		return;
	(void)slot;
	for (unsigned i = 0; i < LEASES; i++) {
		if (model_leases[i].lease && model_leases[i].holder == holder)
			give_back(i);
	}
	cr_assert_null(held[holder]);
}

static void try_pin(unsigned slot)
{
	struct slot *s = &slots[slot];
	unsigned pin = pick(PINS), bit = 1u << pin;

	if (!s->there)
		return;
	if (pick(2) == 0) {
		foretold(version_unpin(s->version, pins[pin], &ledger.error), s->pins & bit ? 0 : -ENOENT);
		s->pins &= ~bit;
		return;
	}
	foretold(version_pin(s->version, pins[pin], &ledger.error), s->state != VERSION_READY ? -EINVAL
								    : s->pins & bit           ? -EEXIST
											      : 0);
	if (s->state == VERSION_READY)
		s->pins |= bit;
}

/* ---- aliases, the end ---- */

static void move(unsigned model, unsigned alias, int slot)
{
	named[model][alias].slot = slot;
	named[model][alias].generation++;
}

static void try_swap(unsigned slot)
{
	struct slot *s = &slots[slot];
	unsigned model = slot / TAGS, alias = pick(ALIASES);
	int old = named[model][alias].slot;
	struct swap_result result;

	if (!s->there)
		return;
	foretold(registry_swap(ledger.registry,
			       &(struct alias_move){models[model], aliases[alias], s->version, NULL}, &result,
			       &ledger.error),
		 alias == 1 || s->state != VERSION_READY ? -EINVAL : 0);
	if (alias == 1 || s->state != VERSION_READY)
		return;
	cr_assert_eq(result.old, old < 0 ? NULL : slots[old].version);
	cr_assert_eq(result.changed, old != (int)slot);
	if (old == (int)slot)
		return;
	if (alias == 0 && old >= 0)
		move(model, 1, old);
	move(model, alias, (int)slot);
	cr_assert_eq(result.generation, named[model][alias].generation);
}

static void unname(unsigned model, unsigned alias)
{
	named[model][alias].slot = -1;
	named[model][alias].generation = 0;
}

static void try_unname(unsigned slot)
{
	unsigned model = slot / TAGS, alias = pick(2) * 2;
	struct swap_result result;

	foretold(registry_swap(ledger.registry, &(struct alias_move){models[model], aliases[alias], NULL, NULL},
			       &result, &ledger.error),
		 named[model][alias].slot < 0 ? -ENOENT : 0);
	unname(model, alias);
}

static bool is_named(unsigned slot)
{
	for (unsigned alias = 0; alias < ALIASES; alias++) {
		if (alias != 1 && named[slot / TAGS][alias].slot == (int)slot)
			return true;
	}
	return false;
}

void try_retire(unsigned slot)
{
	struct slot *s = &slots[slot];
	int expected = 0;

	if (!s->there)
		return;
	if (s->state != VERSION_READY && s->state != VERSION_RETIRING)
		expected = -EINVAL;
	else if (is_named(slot))
		expected = -EBUSY;
	foretold(registry_retire(ledger.registry, s->version, &ledger.error), expected);
	if (expected)
		return;
	s->state = VERSION_RETIRING;
	if (named[slot / TAGS][1].slot == (int)slot)
		unname(slot / TAGS, 1);
}

void try_remove(unsigned slot)
{
	struct slot *s = &slots[slot];

	if (!s->there)
		return;
	cr_assert_eq(version_unused(s->version), s->state == VERSION_RETIRING && !s->leases && !s->pins);
	if (!version_unused(s->version))
		return;
	take_memory(s);
	registry_remove(ledger.registry, s->version);
	s->there = false;
}

/* ---- the run ---- */

void random_begin(const char *who)
{
	const char *given = getenv("GPUWM_SEED");
	struct quota_limits limits = quota_defaults;

	random_state = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
	fprintf(stderr, "%s: GPUWM_SEED=%llu\n", who, (unsigned long long)random_state);
	random_state = random_state * 0x9E3779B97F4A7C15 | 1;
	ledger_open();
	devices[0] = ledger.host;
	devices[1] = ledger.gpu;
	devices[0]->budget = devices[1]->budget = BUDGET;
	limits.per_uid[QUOTA_LEASES] = LEASES_PER_USER;
	limits.per_uid[QUOTA_PUBLISHES] = PUBLISHES_PER_USER;
	quota_free(ledger.quota);
	ledger.quota = quota_new(&limits);
	for (unsigned i = 0; i < MODELS * ALIASES; i++)
		named[i / ALIASES][i % ALIASES].slot = -1;
}

void random_step(unsigned operation)
{
	static void (*const operations[])(unsigned) = {
		try_begin,   try_join,    try_commit, try_check, try_ready,  try_fail,   try_lease, try_lease,
		try_release, try_hang_up, try_pin,    try_swap,  try_unname, try_retire, try_remove};
	enum { COUNT = sizeof(operations) / sizeof(operations[0]) };
	/* In turns, one operation comes more often than the others: tables fill, versions fail. */
	unsigned favourite = operation / 500 % COUNT, which = pick(3) ? pick(COUNT) : favourite;

	operations[which](pick(SLOTS));
}
