/* What the tests of snapshots share: an fd store of numbers, putting and taking. */
#ifndef GPUWM_TESTS_DAEMON_SNAPSHOT_H
#define GPUWM_TESTS_DAEMON_SNAPSHOT_H

#include "daemon/ledger/registry_internal.h"
#include "daemon/restart/snapshot.h"
#include "tests/support/daemon/ledger.h"

/* Descriptors that were never opened: the number of a name. */
#define FAKE_FD(name) ((int)(name) + 100000)

extern uint64_t fake_next_name;
extern uint64_t fake_scrub_from_ms;
extern uint64_t fake_missing[8]; /* names that the store lost */
extern uint64_t fake_other; /* a name with something else */
extern uint64_t fake_taken; /* how many were taken */
extern uint64_t fake_looked, fake_looked_sealed, fake_looked_bytes;
extern bool fake_all_missing;

/* The functions of a snapshot_fds for this store. */
int fake_look(void *data, uint64_t name, int seals, uint64_t bytes);
int fake_take(void *data, uint64_t name);

/* Gives names to what a version's parts hold, as the fd store's client does before it is ready. */
void fake_store(struct version *version);

/* A part with `count` segments of 1,000 bytes, checked. */
void fake_fill(struct version *version, uint32_t position, uint32_t count);

/* Also counts it. */
struct version *fake_ready(const char *model, const char *tag);
struct snapshot fake_snapshot(void);

/* The ledger as bytes. */
void fake_put(struct message_writer *w);

/* What came back of them last. */
struct back {
	struct device_table devices;
	struct snapshot snapshot;
	struct registry *registry;
	struct claim_table *claims;
	struct unread_records unread;
	uint64_t lost;
};
extern struct back back;

/* Makes `back` ready to take a snapshot, without what came back before. */
void back_open(void);
void back_clear(void);

/* Takes a snapshot into `back`. Returns what snapshot_take returns. */
int back_take(const void *data, size_t bytes);

/* The whole way: into bytes and out of them. */
void back_from_ledger(void);

/* What a reference names there; NULL. */
struct version *back_find(const char *text);

/* What came back makes the same snapshot as the ledger. */
void expect_same_bytes(void);

/* A LedgerTest after which `back` is empty. */
#define SnapshotTest(suite, name) TestBetween(suite, name, ledger_open(), (back_clear(), ledger_close()))

#endif
