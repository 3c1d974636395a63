/* Failed versions are listed until they are removed, by hand or by themselves. */
#include "tests/support/daemon/access.h"

TestSuite(failed, .init = server_open, .fini = server_close, .timeout = 60);

/* A version of this user that failed. */
static struct version *failed(const char *model, const char *tag, uid_t uid)
{
	struct error reason = {.code = -EBADMSG, .message = "tensor x is damaged"};
	struct publish_part *part;
	struct publish *publish = building(model, tag, &part);
	struct version *version = publish->version;

	version->owner = uid;
	versions_fail(&server->work, publish, &reason, NULL);
	turn();
	return version;
}

static int rm(int sock, const char *ref)
{
	return ASK(sock, "remove", TEXT("ref", ref));
}

static void expect_refused(int sock, const char *ref, const char *message_is, const char *remedy)
{
	cr_expect_eq(rm(sock, ref), -EINVAL, "%s", ref);
	cr_expect_str_eq(message.error.message, message_is);
	cr_expect(strstr(message.error.detail, remedy), "%s", message.error.detail);
}

/* The next event on this connection, which subscribed. */
static void expect_removed(int sock, const char *tag)
{
	cr_assert(comes_beside_audit(sock));
	cr_assert_str_eq(message.method, "event");
	cr_expect_str_eq(answer_text("kind"), "version_removed");
	cr_expect_str_eq(answer_text("model"), "m");
	cr_expect_str_eq(answer_text("tag"), tag);
}

Test(failed, are_removed_by_their_publisher_and_by_operators)
{
	int maker = connect_uid(OWNER, ROLE_PUBLISHER), other = connect_uid(OTHER, ROLE_PUBLISHER),
	    admin = greeted(SESSION_ADMIN);

	failed("m", "v1", OWNER);
	failed("m", "v2", OWNER);
	cr_expect_eq(rm(other, "m@v1"), -EACCES);
	cr_expect_eq(told(maker, "versions"), 2);
	cr_expect_eq(rm(maker, "m@v1"), 0);
	cr_expect_eq(rm(maker, "m@v1"), -ENOENT);
	cr_expect_eq(rm(admin, "m@v2"), 0);
	cr_expect_eq(told(maker, "versions"), 0);
}

Test(failed, are_removed_by_the_owner_of_their_model_and_by_id)
{
	int owner = connect_uid(OWNER, 0), maker = connect_uid(OTHER, 0);
	char id[VERSION_ID_TEXT];
	struct version *version;

	owned("m", "v1", OWNER);
	version = failed("m", "v2", OTHER);
	hex128_format(version->id.bytes, id);
	cr_expect_eq(rm(owner, id), 0);
	failed("m", "v2", OWNER);
	cr_expect_eq(rm(maker, "m@v2"), -EACCES);
	cr_expect_eq(rm(owner, "m@v2"), 0);
}

Test(failed, alone_are_removed_and_the_remedy_is_told_for_others)
{
	int admin = greeted(SESSION_ADMIN);
	struct publish_part *part;
	struct publish *publish = building("m", "v2", &part);
	struct version *old = ready("m", "v1");
	struct error error;

	expect_refused(admin, "m@v1", "m@v1 is ready: only a failed version can be removed", "gpuwmctl retire");
	expect_refused(admin, "m@v2", "m@v2 is building: only a failed version can be removed",
		       "gpuwmctl cancel");
	cr_assert_eq(version_pin(old, "night", &error), 0);
	registry_remove_aliases(server->ledger.registry);
	cr_assert_eq(versions_retire(&server->work, old, &error), 0);
	expect_refused(admin, "m@v1", "m@v1 is retiring: only a failed version can be removed", "--force");
	error_set(&error, -EIO, NULL, "no such luck");
	versions_fail(&server->work, publish, &error, NULL);
	cr_expect_eq(retire(admin, "m@v2"), -EINVAL);
	cr_expect(strstr(message.error.detail, "gpuwmctl rm"), "%s", message.error.detail);
	cr_expect_eq(rm(admin, "m@v2"), 0);
}

Test(failed, are_told_by_an_event_when_they_go_for_whatever_reason)
{
	int admin = greeted(SESSION_ADMIN), watcher = greeted(SESSION_ADMIN);
	struct publish_part *part;
	char tag[16];

	failed("m", "v1", OWNER);
	failed("m", "v2", OWNER);
	cr_assert_eq(ask(watcher, "subscribe"), 0);
	cr_assert_eq(rm(admin, "m@v1"), 0);
	expect_removed(watcher, "v1");
	building("m", "v2", &part);
	expect_removed(watcher, "v2");
	for (int i = 0; i <= FAILED_KEPT_MAX; i++) {
		snprintf(tag, sizeof(tag), "t%d", i);
		failed("m", tag, OWNER);
		if (i == FAILED_KEPT_MAX)
			expect_removed(watcher, "t0");
		cr_assert(comes_beside_audit(watcher));
		cr_expect_str_eq(answer_text("kind"), "version_failed");
	}
	cr_expect_eq(told(admin, "versions"), FAILED_KEPT_MAX + 1, "and the one that is building");
}

Test(failed, go_by_themselves_after_their_time_the_oldest_first)
{
	int watcher = greeted(SESSION_ADMIN);
	struct version *second;

	config.failed_keep_s = 1;
	failed("m", "v1", OWNER)->failed_ms -= 500;
	versions_failed_arm(&server->work);
	second = failed("m", "v2", OWNER);
	second->failed_ms += 600000;
	cr_assert_eq(ask(watcher, "subscribe"), 0);
	TURN_UNTIL(registry_oldest_failed(server->ledger.registry) == second);
	expect_removed(watcher, "v1");
	cr_expect(uv_is_active((uv_handle_t *)&server->work.failed_timer), "for the other one");
}

Test(failed, stay_where_there_is_no_time_and_go_when_a_reload_sets_one)
{
	struct version *version;

	config.failed_keep_s = 0;
	version = failed("m", "v1", OWNER);
	version->failed_ms -= 100000;
	versions_failed_arm(&server->work);
	cr_expect_not(uv_is_active((uv_handle_t *)&server->work.failed_timer));
	config.failed_keep_s = 100;
	versions_failed_arm(&server->work);
	TURN_UNTIL(!registry_oldest_failed(server->ledger.registry));
}
