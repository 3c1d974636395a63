/* The simple model beside which tests/unit/daemon_random.c runs the ledger: arrays, and one function
 * an operation that foretells its result. */
#ifndef GPUWM_TESTS_DAEMON_RANDOM_H
#define GPUWM_TESTS_DAEMON_RANDOM_H

#include "tests/support/daemon/ledger.h"

#include <time.h>

enum { OPERATIONS = 100000, MODELS = 4, TAGS = 24, SLOTS = MODELS * TAGS };
enum { HOLDERS = 8, USERS = 3, LEASES = 256, PARTS = 4, PINS = 3, ALIASES = 4 };
enum { BUDGET = 900, LEASES_PER_USER = 40, PUBLISHES_PER_USER = 12 };

/* The model. A slot is a model's tag; versions in it come and go. */
struct slot {
	bool there;
	enum version_state state;
	struct version *version;
	struct publish *publish;
	unsigned user, world, parts, pins, leases;
	struct {
		unsigned rank, device;
		bool committed, checked;
		uint64_t granted;
		unsigned segments;
	} part[PARTS];
	uint64_t failed_as; /* order of failures */
};
extern struct slot slots[SLOTS];

struct leased {
	struct lease *lease;
	uint64_t id;
	unsigned slot, holder;
};
extern struct leased model_leases[LEASES];

struct model_alias {
	int slot; /* -1: no such alias */
	uint64_t generation;
};
extern struct model_alias named[MODELS][ALIASES];

extern const char *const models[MODELS];
extern const char *const aliases[ALIASES];
extern const char *const pins[PINS];

extern unsigned user_leases[USERS], user_publishes[USERS];
extern uint64_t used[2], failures, forgotten, refused[3]; /* ENOSPC, EDQUOT, EBUSY */
extern struct device *devices[2];

const char *tag_of(unsigned slot);

/* ---- publishes ---- */

void try_fail(unsigned slot);

/* ---- leases, pins ---- */

void give_back(unsigned i);

/* ---- aliases, the end ---- */

void try_retire(unsigned slot);
void try_remove(unsigned slot);

/* ---- the run ---- */

/* Opens the ledger. */
void random_begin(const char *who);
void random_step(unsigned operation);

#endif
