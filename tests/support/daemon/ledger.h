/* What the tests of the ledger share: two devices, quotas, a registry, publishes. */
#ifndef GPUWM_TESTS_DAEMON_LEDGER_H
#define GPUWM_TESTS_DAEMON_LEDGER_H

#include "daemon/ledger/claim.h"
#include "daemon/ledger/publish.h"
#include "tests/support/any/between.h"

#include <criterion/criterion.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEDGER_GPU "GPU-01234567-89ab-cdef-0123-456789abcdef"
#define LEDGER_UID 1000

struct ledger {
	struct device_table devices;
	struct device *host, *gpu;
	struct quota *quota;
	struct registry *registry;
	struct publish_table *publishes;
	struct claim_table *claims;
	struct error error;
};
extern struct ledger ledger;

/* Opens `ledger` with the host and a GPU; closes it, and nothing is charged any more. */
void ledger_open(void);
void ledger_close(void);

/* A test between ledger_open and ledger_close. */
#define LedgerTest(suite, name) TestBetween(suite, name, ledger_open(), ledger_close())

/* A version in building with its one part. */
struct version *ledger_building(const char *model, const char *tag);
void ledger_make_ready(struct version *version);
struct version *ledger_ready(const char *model, const char *tag);
void ledger_fail(struct version *version);

/* What a reference names now, or NULL with ledger.error set. */
struct version *ledger_find(const char *text);
int ledger_swap(const char *model, const char *alias, struct version *to);
struct lease *ledger_lease(struct version *version, void *holder, struct lease **leases);

#define expect_error(call, expected, text)                                                                     \
	do {                                                                                                   \
		ledger.error = (struct error){0};                                                              \
		int code_ = (call);                                                                            \
		cr_expect_eq(code_, (expected), "%s gave %d: %s", #call, code_, ledger.error.message);         \
		cr_expect(strstr(ledger.error.message, (text)), "\"%s\" is not in \"%s\"", (text),             \
			  ledger.error.message);                                                               \
	} while (0)

#endif
