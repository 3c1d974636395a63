/* What gpuwmd knows of models: plain data without a loop, a socket or a process. Its parts are public to the floors above,
 * which keep them in step with each other. */
#ifndef GPUWM_DAEMON_LEDGER_H
#define GPUWM_DAEMON_LEDGER_H

#include "claim.h"
#include "device.h"
#include "event.h"
#include "ipc_copy.h"
#include "publish.h"
#include "region.h"
#include "registry.h"

struct ledger {
	struct quota *quota; /* what each uid holds */
	struct device_table devices;
	struct registry *registry; /* models, versions, aliases, leases */
	struct publish_table *publishes;
	struct claim_table *claims;
	struct region_table regions;
	struct ipc_copy_table copies;
	struct event_ring *events;
	uint64_t scrub_from_ms; /* when the last whole scrub began, or the first start, in ms since 1970 */
};

/* Makes an empty ledger, which the caller clears with ledger_clear, also after an error. -ENOMEM. */
int ledger_init(struct ledger *ledger, const struct quota_limits *limits);
/* Sets how many descriptors versions and regions may have, as registry_set_fds_max: users and operators share so many. */
void ledger_set_fds_max(struct ledger *ledger, uint64_t most);
/* Sets the limits for new charges, but for that number. */
void ledger_set_limits(struct ledger *ledger, const struct quota_limits *limits);
/* Closes the descriptors of all versions and regions. A zeroed ledger is fine. */
void ledger_clear(struct ledger *ledger);

#endif
