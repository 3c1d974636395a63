/* What a session may do to a model, and what it is told of those that it may not attach to. */
#include "daemon_server.h"

TestSuite(access, .init = server_open, .fini = server_close, .timeout = 120);

#define OWNER 1001
#define NAMED 1002
#define OTHER 1003

/* A new connection of this user. */
static int connect_uid(uid_t uid, unsigned roles)
{
	int sock = greeted(SESSION_WORKER);

	server->sessions->peer.uid = uid;
	server->sessions->peer.gid = uid;
	server->sessions->roles = ROLE_WORKER | roles;
	server->sessions->access = (struct access){0};
	return sock;
}

static void rule(const char *section, const char *key, const char *value)
{
	struct error error;

	cr_assert_eq(config_set(&config, section, key, value, &error), 0, "%s", error.message);
	server->rules_generation++;
}

static struct version *owned(const char *model, const char *tag, uid_t uid)
{
	struct publish_part *part;
	struct publish *publish = building(model, tag, &part);

	publish->version->owner = uid;
	return complete(publish, part, 1);
}

static int get(int sock, const char *ref)
{
	send_get(sock, 1, ref, 0);
	return answered(sock);
}

/* The code of a request with these texts; a NULL key ends them. */
static int ask_with(int sock, const char *method, const char *const *pairs)
{
	struct message_writer w;

	begin_request(&w, 1, method);
	for (; *pairs; pairs += 2)
		message_put_text(&w, pairs[0], pairs[1]);
	send_request(sock, &w);
	return answered(sock);
}
#define ASK(sock, method, ...) ask_with(sock, method, (const char *const[]){__VA_ARGS__, NULL})

static uint32_t told(int sock, const char *what)
{
	struct fields f;
	uint32_t count;

	cr_assert_eq(ask(sock, METHOD_LIST), 0);
	fields_of(&f, message.body);
	fields_array(&f, what, &count);
	return count;
}

static int retire(int sock, const char *ref)
{
	return ASK(sock, METHOD_RETIRE, "ref", ref);
}

static int swap(int sock, const char *model, const char *to)
{
	return ASK(sock, METHOD_HOT_SWAP, "model", model, "to", to);
}

static int pin(int sock, const char *ref)
{
	return ASK(sock, METHOD_PIN_VERSION, "ref", ref, "pin", "p");
}

static int may_publish(uid_t uid, unsigned roles, const char *model, struct error *error)
{
	int sock = connect_uid(uid, roles), r = access_publish(server->sessions, model, NULL, error);

	close(sock);
	turn();
	return r;
}

/* ---- attaching ---- */

Test(access, without_rules_everybody_attaches)
{
	int sock = connect_uid(OTHER, 0);

	owned("m", "v1", OWNER);
	cr_expect_eq(get(sock, "m"), 0);
	rule("model.1", "match", "*");
	rule("model.1", "publish", "1002");
	cr_expect_eq(get(sock, "m"), 0, "a section without attach lets everybody");
	close(sock);
}

Test(access, a_section_names_those_who_attach)
{
	int owner = connect_uid(OWNER, 0), named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0);
	int operator= greeted(SESSION_ADMIN);

	owned("s/m", "v1", OWNER);
	rule("model.1", "match", "s/*");
	rule("model.1", "attach", "1002");
	cr_expect_eq(get(named, "s/m"), 0);
	cr_expect_eq(get(owner, "s/m"), 0);
	cr_expect_eq(get(operator, "s/m"), 0);
	cr_expect_eq(get(other, "s/m"), -ENOENT);
	rule("model.1", "operate", "@1003");
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
	rule("model.1", "attach", "1002");
	cr_expect_str_eq(error_of(other, "s"), "no model \"s\"|there are open");
	version = owned("s", "v1", OWNER);
	cr_expect_str_eq(error_of(other, "s"), "no model \"s\"|there are open");
	cr_expect_str_eq(error_of(other, "s@v1"), "no model \"s\"|there are open");
	cr_expect_str_eq(error_of(other, "x"), "no model \"x\"|there are open");
	hex128_format(version->id.bytes, id);
	cr_assert(strstr(error_of(other, id), "it was freed, or never was"));
	cr_expect_eq(retire(other, "s@v1"), -ENOENT);
	cr_expect_eq(pin(other, "s@v1"), -ENOENT);
	cr_expect_eq(swap(other, "s", "v1"), -ENOENT);
	cr_expect_eq(ASK(other, METHOD_HOT_SWAP, "model", "s"), -ENOENT);
	cr_expect_eq(ASK(other, METHOD_VERIFY, "ref", "s"), -ENOENT);
	close(other);
}

Test(access, list_leaves_hidden_models_out)
{
	int named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0), publisher = connect_uid(NAMED, 0);

	owned("open", "v1", OWNER);
	owned("s/m", "v1", OWNER);
	rule("model.1", "match", "s/*");
	rule("model.1", "attach", "1001");
	rule("model.1", "publish", "1002");
	cr_assert_eq(ASK(publisher, METHOD_CLAIM, "name", "s/n@v1"), 0, "%s", message.error.message);
	cr_expect_eq(told(named, "versions"), 2);
	cr_expect_eq(told(named, "aliases"), 2);
	cr_expect_eq(told(named, "models"), 2);
	cr_expect_eq(told(named, "claims"), 1);
	cr_expect_eq(told(other, "versions"), 1);
	cr_expect_eq(told(other, "aliases"), 1);
	cr_expect_eq(told(other, "models"), 1);
	cr_expect_eq(told(other, "claims"), 0);
	close(named);
	close(other);
	close(publisher);
}

/* How many events come, all of which speak of `model`. */
static int events_about(int sock, const char *model)
{
	int count = 0;

	while (comes(sock)) {
		cr_assert_eq(message.type, MESSAGE_NOTIFICATION);
		cr_assert_str_eq(message.method, NOTIFY_EVENT);
		cr_expect_str_eq(answer_text("model"), model);
		count++;
	}
	return count;
}

Test(access, events_of_hidden_models_are_not_told)
{
	int other = connect_uid(OTHER, 0), named = connect_uid(NAMED, 0);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "1002");
	cr_assert_eq(ask(other, METHOD_SUBSCRIBE), 0);
	cr_assert_eq(ask(named, METHOD_SUBSCRIBE), 0);
	owned("s", "v1", OWNER);
	cr_expect_eq(events_about(other, "s"), 0);
	cr_expect_eq(events_about(named, "s"), 2, "ready, and current swapped");
	owned("open", "v1", OWNER);
	cr_expect_eq(events_about(other, "open"), 2);
	close(other);
	close(named);
}

Test(access, the_end_of_hidden_leases_and_versions_is_not_told)
{
	int owner = connect_uid(OWNER, 0), other = connect_uid(OTHER, 0), named = connect_uid(NAMED, 0),
	    admin = greeted(SESSION_ADMIN);
	struct message_writer w;

	rule("model.1", "match", "s");
	rule("model.1", "attach", "1002");
	owned("s", "v1", OWNER);
	cr_assert_eq(get(owner, "s"), 0, "%s", message.error.message);
	cr_assert_eq(ASK(admin, METHOD_HOT_SWAP, "model", "s"), 0);
	cr_assert_eq(ask(other, METHOD_SUBSCRIBE), 0);
	cr_assert_eq(ask(named, METHOD_SUBSCRIBE), 0);
	begin_request(&w, 1, METHOD_KICK);
	message_put_u64(&w, "uid", OWNER);
	send_request(admin, &w);
	cr_assert_eq(answered(admin), 0, "%s", message.error.message);
	cr_expect_eq(events_about(named, "s"), 1, "revoked");
	cr_assert_eq(retire(admin, "s@v1"), 0);
	TURN_UNTIL(!registry_model(server->registry, "s"));
	cr_expect_eq(events_about(named, "s"), 2, "retiring, freed");
	cr_expect_eq(events_about(other, "s"), 0);
	close(owner);
	close(other);
	close(named);
	close(admin);
}

Test(access, an_owner_is_told_events_of_a_model_that_is_gone)
{
	int owner = connect_uid(OWNER, 0), admin = greeted(SESSION_ADMIN);
	struct message_writer w;

	rule("model.1", "match", "s");
	rule("model.1", "attach", "1002");
	owned("s", "v1", OWNER);
	cr_assert_eq(ASK(admin, METHOD_HOT_SWAP, "model", "s"), 0);
	cr_assert_eq(retire(admin, "s@v1"), 0);
	TURN_UNTIL(!registry_model(server->registry, "s"));
	begin_request(&w, 1, METHOD_SUBSCRIBE);
	message_put_u64(&w, "after", 0);
	send_request(owner, &w);
	cr_assert_eq(answered(owner), 0);
	cr_expect_eq(events_about(owner, "s"), 5, "ready, two swaps, retiring, freed");
	close(owner);
	close(admin);
}

Test(access, who_waits_for_a_hidden_model_gets_it_when_a_reload_lets_it)
{
	int other = connect_uid(OTHER, 0);

	rule("model.1", "match", "s");
	rule("model.1", "attach", "1002");
	send_get(other, 1, "s", -1);
	owned("s", "v1", OWNER);
	cr_expect_not(comes(other));
	rule("model.1", "attach", "1003");
	waiters_wake(server, WAIT_READY, NULL); /* as a reload does */
	cr_expect_eq(answered(other), 0);
	close(other);
}

Test(access, a_reload_leaves_leases_alone)
{
	int other = connect_uid(OTHER, 0);

	owned("s", "v1", OWNER);
	cr_assert_eq(get(other, "s"), 0);
	rule("model.1", "match", "s");
	rule("model.1", "attach", "1002");
	cr_expect_eq(get(other, "s"), -ENOENT);
	cr_expect_eq(leases(), 1);
	close(other);
}

Test(access, an_observer_sees_and_does_not_attach)
{
	int observer = connect_uid(OTHER, ROLE_OBSERVER);

	rule("model.7", "match", "s");
	rule("model.7", "attach", "1002");
	owned("s", "v1", OWNER);
	cr_expect_eq(told(observer, "versions"), 1);
	cr_expect_eq(get(observer, "s"), -EACCES);
	cr_expect_str_eq(message.error.message,
			 "[model.7] of gpuwmd's configuration does not let uid 1003 attach to model \"s\"");
	cr_expect_eq(retire(observer, "s@v1"), -EACCES);
	cr_expect_eq(pin(observer, "s@v1"), -EACCES);
	close(observer);
}

/* ---- changing ---- */

Test(access, a_publisher_publishes_into_what_nobody_owns)
{
	struct error error;

	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), 0);
	cr_expect_eq(may_publish(OTHER, 0, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "to publish into model \"m\" needs the role publisher");
}

Test(access, of_an_owned_model_other_publishers_keep_off)
{
	struct error error;

	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(OWNER, 0, "m", &error), 0, "also without the group");
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "model \"m\" is uid 1001's: uid 1003 may not publish into it");
}

Test(access, a_refusal_does_not_tell_who_owns_what_is_hidden)
{
	struct error error;

	rule("model.1", "match", "m");
	rule("model.1", "attach", "1002");
	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "uid 1003 may not publish into model \"m\"");
}

Test(access, a_section_with_publish_names_all_who_publish)
{
	struct error error;

	rule("model.2", "match", "m*");
	rule("model.2", "publish", "1002");
	cr_expect_eq(may_publish(NAMED, 0, "m", &error), 0, "needs no group");
	cr_expect_eq(may_publish(NAMED, 0, "x", &error), -EACCES, "of that section's models only");
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message,
			 "[model.2] of gpuwmd's configuration does not let uid 1003 publish into model \"m\"");
	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(NAMED, 0, "m", &error), 0, "whoever owns it");
}

Test(access, the_owner_and_the_named_move_aliases)
{
	int owner = connect_uid(OWNER, 0), named = connect_uid(NAMED, 0),
	    other = connect_uid(OTHER, ROLE_PUBLISHER);

	owned("m", "v1", OWNER);
	owned("m", "v2", OWNER);
	rule("model.1", "match", "m");
	rule("model.1", "publish", "1002");
	cr_expect_eq(swap(owner, "m", "v2"), 0);
	cr_expect_eq(swap(named, "m", "v1"), 0);
	cr_expect_eq(swap(other, "m", "v2"), -EACCES);
	cr_expect_eq(ASK(other, METHOD_HOT_SWAP, "model", "m"), -EACCES, "nor removes one");
	cr_expect_str_eq(message.error.message,
			 "model \"m\" is uid 1001's: uid 1003 may not move aliases of it");
	close(owner);
	close(named);
	close(other);
}

Test(access, others_retire_only_what_they_published)
{
	int owner = connect_uid(OWNER, 0), other = connect_uid(OTHER, ROLE_PUBLISHER);

	owned("m", "v1", OWNER);
	owned("m", "v2", OTHER);
	owned("m", "v3", OTHER);
	owned("m", "v4", OWNER);
	cr_expect_eq(retire(other, "m@v4"), -EACCES);
	cr_expect_str_eq(message.error.message, "m@v4 was published by uid 1001: uid 1003 may not retire it");
	cr_expect_eq(retire(other, "m@v2"), 0);
	cr_expect_eq(retire(owner, "m@v3"), 0, "the owner: any of it");
	TURN_UNTIL(registry_counts(server->registry).versions == 2);
	close(owner);
	close(other);
}

Test(access, pins_and_verifies_are_for_those_who_operate)
{
	int owner = connect_uid(OWNER, ROLE_PUBLISHER), named = connect_uid(NAMED, 0);

	owned("m", "v1", OWNER);
	rule("model.1", "match", "m");
	rule("model.1", "operate", "1002");
	cr_expect_eq(pin(owner, "m"), -EACCES);
	cr_expect_eq(ASK(owner, METHOD_VERIFY, "ref", "m"), -EACCES);
	cr_expect_str_eq(message.error.message, "verify needs the role operator for model \"m\"");
	cr_expect_eq(pin(named, "m"), 0);
	cr_expect_eq(ASK(named, METHOD_UNPIN_VERSION, "ref", "m", "pin", "p"), 0);
	cr_expect_eq(ASK(named, METHOD_VERIFY, "ref", "m", "device", "x"), -ENODEV);
	close(owner);
	close(named);
}

Test(access, what_an_operator_made_is_operated_on_the_admin_socket)
{
	int same_uid = connect_uid(0, ROLE_PUBLISHER), admin = greeted(SESSION_ADMIN);
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);

	publish->version->by_operator = true;
	complete(publish, part, 1);
	owned("m", "v2", OTHER);
	cr_expect_eq(retire(same_uid, "m@v1"), -EACCES, "root of a container is no operator");
	cr_expect_eq(retire(same_uid, "m@v2"), -EACCES);
	cr_expect_eq(swap(same_uid, "m", "v2"), -EACCES);
	cr_expect_eq(access_publish(server->sessions->next, "m", NULL, NULL), 0, "it publishes, as ever");
	cr_expect_eq(swap(admin, "m", "v2"), 0);
	close(same_uid);
	close(admin);
}

/* A model that another one came to own while a publish with an alias was open. */
Test(access, an_alias_is_not_moved_for_who_was_overtaken)
{
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);
	struct version *first, *late;

	strcpy(publish->alias, "current");
	publish->version->owner = OTHER;
	first = owned("m", "v2", OWNER);
	late = complete(publish, part, 1);
	cr_expect_eq(late->state, VERSION_READY);
	cr_expect_eq(late->error.code, -EACCES);
	cr_expect(strstr(late->error.message, "model \"m\" has become uid 1001's"), "%s", late->error.message);
	cr_expect_eq(first->alias_count, 1);
}

Test(access, a_verify_is_told_to_who_began_it)
{
	int named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0);
	struct job *job;
	struct error error;
	struct message_writer w;

	cr_assert_eq(job_new(server, JOB_VERIFY, "m", "v1", NAMED, &job, &error), 0);
	for (int i = 0; i < 2; i++) {
		int sock = i ? other : named;

		begin_request(&w, 1, METHOD_JOBS);
		message_put_u64(&w, "job", job->id);
		send_request(sock, &w);
		cr_expect_eq(answered(sock), i ? -EACCES : 0);
	}
	cr_expect_eq(ask(named, METHOD_JOBS), -EACCES, "not all of them");
	job_drop(&server->jobs, job);
	close(named);
	close(other);
}
