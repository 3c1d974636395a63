#include "ledger.h"

#include <errno.h>

/* A region is charged after it was added to the table. */
static uint64_t regions_taken(const struct region_table *table)
{
	uint64_t count = 0;

	for (const struct region *region = table->first; region; region = region->next)
		count += region->is.by_operator || region->count_charge.user || region->state != REGION_MAKING;
	return count;
}

/* Connections are not here: those of operators and loaders have room of their own. */
static uint64_t ledger_taken(void *data, enum quota_kind kind)
{
	const struct ledger *ledger = data;

	switch (kind) {
	case QUOTA_VERSIONS:
		return registry_counts(ledger->registry).versions;
	case QUOTA_NAMELESS:
		return registry_counts(ledger->registry).nameless;
	case QUOTA_REGIONS:
		return regions_taken(&ledger->regions);
	case QUOTA_COPIES:
		return ledger->copies.count;
	case QUOTA_FDS:
		return registry_fds(ledger->registry);
	case QUOTA_INDEX_BYTES:
		return registry_counts(ledger->registry).index_bytes;
	default:
		return 0;
	}
}

void ledger_set_fds_max(struct ledger *ledger, uint64_t most)
{
	registry_set_fds_max(ledger->registry, most);
	quota_set_all(ledger->quota, QUOTA_FDS, registry_fds_max(ledger->registry));
}

void ledger_set_limits(struct ledger *ledger, const struct quota_limits *limits)
{
	quota_set_limits(ledger->quota, limits);
	quota_set_all(ledger->quota, QUOTA_FDS, registry_fds_max(ledger->registry));
}

int ledger_init(struct ledger *ledger, const struct quota_limits *limits)
{
	*ledger = (struct ledger){0};
	ledger->quota = quota_new(limits);
	ledger->copies.quota = ledger->quota;
	ledger->registry = registry_new();
	ledger->publishes = publish_table_new();
	ledger->claims = claim_table_new();
	region_table_init(&ledger->regions);
	ledger->events = event_ring_new();
	if (ledger->quota)
		quota_set_taken(ledger->quota, ledger_taken, ledger);
	return ledger->quota && ledger->registry && ledger->publishes && ledger->claims && ledger->events
		       ? 0
		       : -ENOMEM;
}

void ledger_clear(struct ledger *ledger)
{
	publish_table_free(ledger->publishes);
	claim_table_free(ledger->claims);
	if (ledger->regions.end)
		region_table_clear(&ledger->regions);
	ipc_copy_table_clear(&ledger->copies);
	registry_free(ledger->registry);
	event_ring_free(ledger->events);
	device_table_clear(&ledger->devices);
	quota_free(ledger->quota);
	*ledger = (struct ledger){0};
}
