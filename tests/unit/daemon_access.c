/* What a session is told of models that it may not attach to. */
#include "tests/support/daemon/access.h"

TestSuite(access, .init = server_open, .fini = server_close, .timeout = 120);

Test(access, without_rules_everybody_attaches)
{
	int sock = connect_uid(OTHER, 0);

	owned("m", "v1", OWNER);
	cr_expect_eq(get(sock, "m"), 0);
	rule("model.1", "match", "*");
	rule("model.1", "publish", "61002");
	cr_expect_eq(get(sock, "m"), 0, "a section without attach lets everybody");
}

Test(access, a_section_names_those_who_attach)
{
	int owner = connect_uid(OWNER, 0), named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0);
	int operator= greeted(SESSION_ADMIN);

	owned("s/m", "v1", OWNER);
	rule("model.1", "match", "s/*");
	rule("model.1", "attach", "61002");
	cr_expect_eq(get(named, "s/m"), 0);
	cr_expect_eq(get(owner, "s/m"), 0);
	cr_expect_eq(get(operator, "s/m"), 0);
	cr_expect_eq(get(other, "s/m"), -ENOENT);
	rule("model.1", "operate", "@61003");
	cr_expect_eq(get(other, "s/m"), 0, "operate lets attach");
	close(owner);
	close(named);
	close(other);
	close(operator);
}

/* The error that the session gets, in words. */
static const char *error_of(int sock, const char *ref)
{
	static char text[2 * TEXT_BYTES_MAX + 4];

	cr_assert_eq(get(sock, ref), -ENOENT);
	snprintf(text, sizeof(text), "%s|%s", message.error.message, message.error.detail);
	return text;
}

Test(access, what_is_hidden_reads_like_what_is_not_there)
{
	int other = connect_uid(OTHER, 0);
	struct version *version;
	char id[VERSION_ID_TEXT];

	owned("open", "v1", OWNER);
	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	cr_expect_str_eq(error_of(other, "s"), "no model \"s\"|there is open");
	version = owned("s", "v1", OWNER);
	cr_expect_str_eq(error_of(other, "s"), "no model \"s\"|there is open");
	cr_expect_str_eq(error_of(other, "s@v1"), "no model \"s\"|there is open");
	cr_expect_str_eq(error_of(other, "x"), "no model \"x\"|there is open");
	hex128_format(version->id.bytes, id);
	cr_assert(strstr(error_of(other, id), "it was freed, or never was"));
	cr_expect_eq(retire(other, "s@v1"), -ENOENT);
	cr_expect_eq(pin(other, "s@v1"), -ENOENT);
	cr_expect_eq(swap(other, "s", "v1"), -ENOENT);
	cr_expect_eq(ASK(other, "hot_swap", TEXT("model", "s")), -ENOENT);
	cr_expect_eq(ASK(other, "verify", TEXT("ref", "s")), -ENOENT);
}

Test(access, list_leaves_hidden_models_out)
{
	int named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0), publisher = connect_uid(NAMED, 0);

	owned("open", "v1", OWNER);
	owned("s/m", "v1", OWNER);
	rule("model.1", "match", "s/*");
	rule("model.1", "attach", "61001");
	rule("model.1", "publish", "61002");
	cr_assert_eq(ASK(publisher, "claim", TEXT("name", "s/n@v1")), 0, "%s", message.error.message);
	cr_expect_eq(told(named, "versions"), 2);
	cr_expect_eq(told(named, "aliases"), 2);
	cr_expect_eq(told(named, "models"), 2);
	cr_expect_eq(told(named, "claims"), 1);
	cr_expect_eq(told(other, "versions"), 1);
	cr_expect_eq(told(other, "aliases"), 1);
	cr_expect_eq(told(other, "models"), 1);
	cr_expect_eq(told(other, "claims"), 0);
}

/* How many events come, all of which speak of `model`. */
static int events_about(int sock, const char *model)
{
	int count = 0;

	while (comes(sock)) {
		cr_assert_eq(message.type, MESSAGE_NOTIFICATION);
		cr_assert_str_eq(message.method, "event");
		cr_expect_str_eq(answer_text("model"), model);
		count++;
	}
	return count;
}

Test(access, events_of_hidden_models_are_not_told)
{
	int other = connect_uid(OTHER, 0), named = connect_uid(NAMED, 0);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	cr_assert_eq(ask(other, "subscribe"), 0);
	cr_assert_eq(ask(named, "subscribe"), 0);
	owned("s", "v1", OWNER);
	cr_expect_eq(events_about(other, "s"), 0);
	cr_expect_eq(events_about(named, "s"), 2, "ready, and current swapped");
	owned("open", "v1", OWNER);
	cr_expect_eq(events_about(other, "open"), 2);
}

Test(access, the_end_of_hidden_leases_and_versions_is_not_told)
{
	int owner = connect_uid(OWNER, 0), other = connect_uid(OTHER, 0), named = connect_uid(NAMED, 0),
	    admin = greeted(SESSION_ADMIN);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	owned("s", "v1", OWNER);
	cr_assert_eq(get(owner, "s"), 0, "%s", message.error.message);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "s")), 0);
	cr_assert_eq(ask(other, "subscribe"), 0);
	cr_assert_eq(ask(named, "subscribe"), 0);
	cr_assert_eq(ASK(admin, "kick", NUMBER("uid", OWNER)), 0, "%s", message.error.message);
	cr_expect_eq(events_about(named, "s"), 1, "revoked");
	cr_assert_eq(retire(admin, "s@v1"), 0);
	TURN_UNTIL(!registry_model(server->ledger.registry, "s"));
	cr_expect_eq(events_about(named, "s"), 2, "retiring, freed");
	cr_expect_eq(events_about(other, "s"), 0);
}

Test(access, an_owner_is_told_events_of_a_model_that_is_gone)
{
	int owner = connect_uid(OWNER, 0), admin = greeted(SESSION_ADMIN);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	owned("s", "v1", OWNER);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "s")), 0);
	cr_assert_eq(retire(admin, "s@v1"), 0);
	TURN_UNTIL(!registry_model(server->ledger.registry, "s"));
	cr_assert_eq(ASK(owner, "subscribe", NUMBER("after", 0)), 0);
	cr_expect_eq(events_about(owner, "s"), 5, "ready, two swaps, retiring, freed");
}

Test(access, who_waits_for_a_hidden_model_gets_it_when_a_reload_lets_it)
{
	int other = connect_uid(OTHER, 0);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	send_get(other, 1, "s", -1);
	owned("s", "v1", OWNER);
	cr_expect_not(comes(other));
	rule("model.1", "attach", "61003");
	waiters_wake(&server->clients, WAIT_READY, NULL); /* as a reload does */
	cr_expect_eq(answered(other), 0);
}

Test(access, a_reload_leaves_leases_alone)
{
	int other = connect_uid(OTHER, 0);

	owned("s", "v1", OWNER);
	cr_assert_eq(get(other, "s"), 0);
	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	cr_expect_eq(get(other, "s"), -ENOENT);
	cr_expect_eq(leases(), 1);
}

Test(access, an_observer_sees_and_does_not_attach)
{
	int observer = connect_uid(OTHER, ROLE_OBSERVER);

	rule("model.7", "match", "s");
	rule("model.7", "attach", "61002");
	owned("s", "v1", OWNER);
	cr_expect_eq(told(observer, "versions"), 1);
	cr_expect_eq(get(observer, "s"), -EACCES);
	cr_expect_str_eq(message.error.message,
			 "[model.7] of gpuwmd's configuration does not let uid 61003 attach to model \"s\"");
	cr_expect_eq(retire(observer, "s@v1"), -EACCES);
	cr_expect_eq(pin(observer, "s@v1"), -EACCES);
}

/* Who is in the groups of publishers and of observers, from now on: as a reload says. */
static void reload_groups(bool publishes, gid_t publishers, bool observes, gid_t observers)
{
	server->clients.has_publish_group = publishes;
	server->clients.publish_group = publishers;
	server->clients.has_observe_group = observes;
	server->clients.observe_group = observers;
	server->clients.roles_generation++;
}

Test(access, an_observer_is_none_after_a_reload_with_another_group)
{
	int sock = connect_uid(OTHER, 0);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	reload_groups(false, 0, true, OTHER);
	cr_expect_eq(ask(sock, "clients"), 0);
	cr_assert_eq(ask(sock, "subscribe"), 0);
	owned("s", "v1", OWNER);
	cr_expect_eq(events_about(sock, "s"), 3, "ready, swapped, audit");
	reload_groups(false, 0, true, NAMED);
	owned("s", "v2", OWNER);
	cr_expect_eq(events_about(sock, "s"), 0);
	cr_expect_eq(told(sock, "versions"), 0);
	cr_expect_eq(ask(sock, "clients"), -EACCES);
	cr_expect_eq(ask(sock, "jobs"), -EACCES);
}

Test(access, a_publisher_is_none_after_a_reload_with_another_group)
{
	int sock = connect_uid(OTHER, 0);

	reload_groups(true, OTHER, false, 0);
	cr_expect_eq(ASK(sock, "claim", TEXT("name", "m@v1")), 0);
	reload_groups(true, NAMED, false, 0);
	cr_expect_eq(ASK(sock, "claim", TEXT("name", "m@v2")), -EACCES);
	reload_groups(true, OTHER, false, 0);
	cr_expect_eq(ASK(sock, "claim", TEXT("name", "m@v2")), 0);
}

Test(access, everybody_sees_the_own_sessions)
{
	int own = connect_uid(OTHER, 0), again = connect_uid(OTHER, 0);

	connect_uid(NAMED, 0);
	cr_expect_eq(ask(own, "clients"), -EACCES);
	cr_assert_eq(ask(own, "own_clients"), 0);
	cr_expect_eq(answer_count("clients"), 2);
	cr_expect_eq(answer_count("users"), 1);
	close(again);
}
