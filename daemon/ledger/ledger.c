#include "ledger.h"

#include <errno.h>

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
