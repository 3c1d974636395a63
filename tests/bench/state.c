/* What it costs gpuwmd that an alias moves, a pin comes or a version becomes ready: the whole ledger as
 * bytes, and they into the state. And what the next start needs to have it again.
 *   state */
#include "bench.h"
#include "daemon/restart/snapshot.h"
#include "daemon/restart/state.h"
#include "lib/report.h"

#define ROUNDS 1000

struct ledger {
	struct device_table devices;
	struct snapshot snapshot;
	struct state *state;
};

static void must(int r, const char *what)
{
	if (r < 0)
		DIE("%s: %s", what, strerror(-r));
}

/* With one part of an index and a segment; every fourth is a model's first, and its `current`. */
static void add_version(struct ledger *l, unsigned number)
{
	struct version like = {.state = VERSION_READY, .world = 1, .owner = 1000, .ready_ms = 1700000000000};
	struct replica part = {.device = l->devices.devices[0], .segment_count = 1, .bytes = GIB(2)};
	struct version *version;
	char model[64];

	snprintf(model, sizeof(model), "meta-llama/Llama-3.1-8B-%u", number / 4);
	snprintf(like.tag, sizeof(like.tag), "step-%u", number);
	must(version_id_new(&like.id), "an id");
	must(version_id_new(&like.publish), "an id");
	must(registry_adopt(l->snapshot.registry, model, &like, &version, NULL), "a version");
	part.index = (struct held_fd){.fd = -1, .bytes = MIB(1), .name = l->snapshot.next_name++};
	part.segments = calloc(1, sizeof(*part.segments));
	if (!part.segments)
		DIE("out of memory");
	part.segments[0].segment = segment_new(-1, GIB(2), l->snapshot.next_name++);
	if (!part.segments[0].segment)
		DIE("out of memory");
	must(version_adopt_replica(version, &part, NULL), "a part");
	if (number % 4 == 0)
		must(registry_adopt_alias(l->snapshot.registry, version, ALIAS_CURRENT, 1, NULL), "an alias");
}

static void ledger_new(struct ledger *l, unsigned versions)
{
	struct device host = {.id = DEVICE_HOST,
			      .kind = &kind_host,
			      .name = "memory",
			      .total = GIB(4096),
			      .granularity = 4096};

	*l = (struct ledger){.snapshot = {.epoch = 1, .next_name = 1, .devices = &l->devices}};
	l->snapshot.registry = registry_new();
	l->snapshot.claims = claim_table_new();
	if (!l->snapshot.registry || !l->snapshot.claims)
		DIE("out of memory");
	must(device_table_report(&l->devices, &host, 0), "a device");
	for (unsigned i = 0; i < versions; i++)
		add_version(l, i);
	must(state_new(&l->state), "a state");
}

static void ledger_free(struct ledger *l)
{
	state_free(l->state);
	registry_free(l->snapshot.registry);
	claim_table_free(l->snapshot.claims);
	device_table_clear(&l->devices);
}

/* As it is after each change. */
static size_t save(struct ledger *l)
{
	struct message_writer w;
	size_t bytes;

	message_writer_init(&w, MESSAGE_BODY_MAX);
	snapshot_put(&w, &l->snapshot);
	must(message_finish(&w), "the snapshot");
	must(state_write(l->state, w.buffer.data, w.buffer.size), "the state");
	bytes = w.buffer.size;
	message_writer_clear(&w);
	return bytes;
}

static int look(void *data, uint64_t name, int seals, uint64_t bytes)
{
	return data || name || seals || bytes ? SNAPSHOT_FD_HERE : SNAPSHOT_FD_MISSING;
}

static int take(void *data, uint64_t name)
{
	return (data || name) - 1;
}

/* As at a start. */
static void load(const struct ledger *l)
{
	const struct snapshot_fds fds = {.look = look, .take = take};
	struct device_table devices = {0};
	struct unread_records unread = {0};
	struct snapshot into = {.unread = &unread,
				.registry = registry_new(),
				.devices = &devices,
				.claims = claim_table_new(),
				.quota = quota_new(&quota_defaults)};
	struct error error;
	struct state *state;
	uint64_t lost;
	uint32_t format;
	size_t bytes;
	void *data;
	int fd = dup(state_fd(l->state));

	if (fd < 0 || state_open(fd, &state, &error) < 0 || state_read(state, &data, &bytes, &format) < 0 ||
	    snapshot_take(&(struct snapshot_stored){data, bytes, format}, &fds, &into, &lost, &error) < 0)
		DIE("the state does not come back");
	free(data);
	state_free(state);
	registry_free(into.registry);
	claim_table_free(into.claims);
	quota_free(into.quota);
	device_table_clear(&devices);
}

static void measure(unsigned versions)
{
	static double saves[ROUNDS], loads[ROUNDS / 10];
	struct ledger l;
	size_t bytes = 0;
	double begin;

	ledger_new(&l, versions);
	for (size_t i = 0; i < ROUNDS; i++) {
		begin = now_us();
		bytes = save(&l);
		saves[i] = now_us() - begin;
	}
	for (size_t i = 0; i < ROUNDS / 10; i++) {
		begin = now_us();
		load(&l);
		loads[i] = now_us() - begin;
	}
	result(percentile(saves, ROUNDS, 0.5), "us", "saving %u versions, %zu bytes; p99 %.1f", versions, bytes,
	       percentile(saves, ROUNDS, 0.99));
	result(percentile(loads, ROUNDS / 10, 0.5), "us", "taking %u versions over", versions);
	ledger_free(&l);
}

int main(void)
{
	heading("the state of gpuwmd, two descriptors a version; p50 of %d", ROUNDS);
	measure(1);
	measure(100);
	measure(1000);
	return 0;
}
