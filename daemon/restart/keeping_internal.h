/* For keeping.c and keeping_begin.c only. */
#ifndef GPUWM_DAEMON_KEEPING_INTERNAL_H
#define GPUWM_DAEMON_KEEPING_INTERNAL_H

#include "keeping.h"
#include "descriptions.h"
#include "inherited.h"
#include "../config/config.h"
#include "../ledger/ledger.h"
#include "awaited.h"
#include "snapshot.h"
#include "state.h"

struct keeping {
	uv_loop_t *loop;
	const struct config *config;
	struct ledger *ledger;
	keeping_over_fn *over;
	void *data; /* of over */
	struct state *state; /* NULL: there is no store, or it is locked */
	struct unread_records *unread; /* of the state */
	struct inherited left; /* when locked, or with unread records: what drain lets go */
	struct error locked;
	struct version_id id; /* of the ledger */
	uint64_t epoch, next_name;
	uint64_t adopted, lost;
	struct descriptions *descriptions;
	bool has_described; /* the folder's versions are in the ledger, or there are none */
	bool knows_devices; /* they came from the state */
	uint64_t found; /* versions that came from the folder */
	struct awaited *awaited; /* NULL: nobody knows which leases were awake */
	uv_timer_t *grace; /* closes on its own */
	uint64_t grace_until_ms; /* steady; 0: over */
};

struct snapshot keeping_snapshot(const struct keeping *keeping);
/* As keeping_save, but returns an error instead of ending gpuwmd. */
int keeping_write(const struct keeping *keeping);
/* Begins the grace time, if versions were adopted. A grace time of 0 ends in the first turn of the loop. */
void keeping_begin_grace(struct keeping *keeping);

#endif
