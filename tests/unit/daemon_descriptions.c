/* When the folder of descriptions is written. */
#include "base/clock.h"
#include "daemon/ledger/relocation.h"
#include "daemon/restart/descriptions_internal.h"
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
	version_describe(v1, description_new(&(struct description){.source = "/models/m"}));
	cr_assert(mkdtemp(folder));
	written = descriptions_new(&server->loop, &server->ledger);
	descriptions_open(written, folder);
	descriptions_begin(written);
}

static void close_written(void)
{
	descriptions_end(written);
	TURN_UNTIL(!descriptions_end_goes_on(written));
	turn(); /* the timer's end */
	written = descriptions_free(written);
}

static void end(void)
{
	char command[64];

	snprintf(command, sizeof(command), "rm -r %s", folder);
	close_written();
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
	version_describe(v1, description_new(&(struct description){.source = "/models/other"}));
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

/* Opens the folder, which is refused with these words, and a remedy that has this command for it. */
static void expect_refusal(const char *says, const char *command)
{
	const struct error *why;
	char text[128];

	descriptions_open(written, "");
	descriptions_open(written, folder);
	why = descriptions_error(written);
	cr_assert(why);
	cr_expect_eq(why->code, -EPERM);
	snprintf(text, sizeof(text), "the folder %s for descriptions %s", folder, says);
	cr_expect_str_eq(why->message, text);
	snprintf(text, sizeof(text), "%s '%s', or set another folder in [tiers]", command, folder);
	cr_expect(strstr(why->detail, text) == why->detail, "%s", why->detail);
}

TestBetween(descriptions, are_not_in_a_folder_that_others_can_write_to, begin(), end())
{
	cr_assert_eq(chmod(folder, 0770), 0);
	expect_refusal("can be written to by its group: its mode is 0770", "chmod go-w");
	cr_assert_eq(chmod(folder, 01702), 0);
	expect_refusal("can be written to by every user: its mode is 1702", "chmod go-w");
	cr_assert_eq(chmod(folder, 0777), 0);
	expect_refusal("can be written to by its group and every user: its mode is 0777", "chmod go-w");
	cr_assert_eq(chmod(folder, 0755), 0);
	descriptions_open(written, folder);
	cr_expect_null(descriptions_error(written));
}

TestBetween(descriptions, are_not_written_while_others_can_write_into_the_folder, begin(), end())
{
	write_all();
	cr_assert_eq(chmod(folder, 0777), 0);
	version_describe(v1, description_new(&(struct description){.source = "/models/other"}));
	descriptions_mark(written);
	TURN_UNTIL((descriptions_settle(written), written->unsafe.code));
	cr_expect_eq(server->loop.active_reqs.count, 0, "a batch is being written");
	cr_assert(descriptions_error(written));
	cr_expect(strstr(descriptions_error(written)->message, "its mode is 0777") != NULL);
	cr_assert_eq(chmod(folder, 0700), 0);
	cr_expect_null(descriptions_error(written));
	descriptions_open(written, folder);
	write_all();
}

TestBetween(descriptions, are_not_in_a_folder_of_another_user, begin(), end())
{
	char says[64], command[32];

	if (geteuid() != 0)
		cr_skip("only root can give a folder away");
	cr_assert_eq(chown(folder, 12345, (gid_t)-1), 0);
	snprintf(says, sizeof(says), "belongs to user 12345, and gpuwmd runs as user %u", geteuid());
	snprintf(command, sizeof(command), "chown %u", geteuid());
	expect_refusal(says, command);
}

/* gpuwmd was killed when the state said that the version was demoted, and the names did not yet. */
TestBetween(descriptions, are_older_than_the_state, begin(), end())
{
	uint64_t adopted;

	write_all();
	close_written();
	v1->tier = v1->moving_to = ON_FILES;
	written = descriptions_new(&server->loop, &server->ledger);
	descriptions_open(written, folder);
	cr_assert_eq(descriptions_take(written, true, &adopted), 0);
	cr_expect_eq(adopted, 0);
	cr_expect(descriptions_have(written, v1));
	cr_expect_not(v1->restores);
	v1->tier = v1->moving_to = ON_DEVICE;
}

/* Each wrong entry is left out, counted, and named in the log; those behind it come back. */
TestBetween(descriptions, a_wrong_entry_of_the_names_costs_itself, begin(), end())
{
	static const char *const pins[] = {"first", "no@name", "last"};
	const struct named_version named = {.pins = {pins, 3}};
	const struct kept_device devices[] = {
		{.id = "no device", .kind = "host", .name = "x", .total = 1, .granularity = 1},
		{.id = "host", .kind = "no kind", .name = "x", .total = 1, .granularity = 1},
	};
	const struct kept_owner owners[] = {{"m", 7, false}, {"n", 8, false}};
	const struct described_names names = {.devices = {devices, 2}, .owners = {owners, 2}};
	const struct version_id unknown = {{1}};
	struct device_table table = {0};
	struct error none;

	cr_expect_eq(description_take_named(v1, &named), 1);
	cr_expect_eq(v1->pin_count, 2);
	cr_expect_eq(description_take_devices(&names, &table), 2);
	device_table_clear(&table);
	cr_expect_not(description_take_alias(&(struct kept_alias){"m", "current", &unknown, 1, NULL},
					     &server->ledger));
	cr_expect_eq(description_take_owners(&names, &server->ledger), 0);
	cr_assert_eq(version_unpin(v1, "first", &none) | version_unpin(v1, "last", &none), 0);
}
