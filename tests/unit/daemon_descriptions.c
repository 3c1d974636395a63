/* When the folder of descriptions is written. */
#include "daemon/base/clock.h"
#include "daemon/ledger/relocation.h"
#include "daemon/restart/descriptions.h"
#include "tests/support/any/between.h"
#include "tests/support/daemon/service.h"

TestSuite(descriptions, .init = open_service, .fini = close_service, .timeout = 60);

static struct descriptions *written;
static struct version *v1; /* m@v1, of /models/m */
static char folder[] = "/tmp/gpuwm-descriptions-XXXXXX";

static void begin(void)
{
	listen_for(SOCK_SEQPACKET, 8);
	v1 = ready_with("m", "v1", 1);
	cr_assert_eq(ftruncate(v1->replicas[0].index.fd, (off_t)v1->replicas[0].index.bytes), 0);
	version_describe(v1, description_new("/models/m", NULL, 0));
	cr_assert(mkdtemp(folder));
	written = descriptions_new(&server->loop, &server->ledger);
	descriptions_open(written, folder);
	descriptions_begin(written);
}

static void end(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	descriptions_end(written);
	turn();
	written = descriptions_free(written);
	cr_expect_eq(system(command), 0);
	versions_retire_all(&server->work);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
	leave();
}

static void write_all(void)
{
	descriptions_settle(written);
	TURN_UNTIL(!descriptions_pending(written));
	cr_assert_null(descriptions_error(written), "%s: %s", descriptions_error(written)->message,
		       descriptions_error(written)->detail);
	cr_assert(descriptions_have(written, v1));
}

/* Two batches would write the same files, and the older one might come last. */
TestBetween(descriptions, are_written_by_one_batch_at_a_time, begin(), end())
{
	const uint64_t later = clock_steady_ms() + 1000;

	write_all();
	version_describe(v1, description_new("/models/other", NULL, 0));
	descriptions_mark(written);
	descriptions_settle(written);
	cr_assert_eq(server->loop.active_reqs.count, 0,
		     "a look was a moment ago: the next one waits for a timer");
	while (clock_steady_ms() < later)
		;
	descriptions_settle(written);
	cr_assert_eq(server->loop.active_reqs.count, 1);
	uv_run(&server->loop, UV_RUN_NOWAIT); /* the timer is due too */
	cr_expect_leq(server->loop.active_reqs.count, 1);
	write_all();
	cr_expect_null(descriptions_error(written));
}

/* gpuwmd was killed when the state said that the version was demoted, and the names did not yet. */
TestBetween(descriptions, are_older_than_the_state, begin(), end())
{
	uint64_t adopted;

	write_all();
	descriptions_end(written);
	turn();
	descriptions_free(written);
	v1->tier = v1->moving_to = ON_FILES;
	written = descriptions_new(&server->loop, &server->ledger);
	descriptions_open(written, folder);
	cr_assert_eq(descriptions_take(written, true, &adopted), 0);
	cr_expect_eq(adopted, 0);
	cr_expect(descriptions_have(written, v1));
	cr_expect_not(v1->restores);
	v1->tier = v1->moving_to = ON_DEVICE;
}
