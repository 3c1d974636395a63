/* What a session may do to a model. */
#include "daemon/methods/methods.h"
#include "tests/support/daemon/access.h"

TestSuite(access_change, .init = server_open, .fini = server_close, .timeout = 120);

Test(access_change, a_publisher_publishes_into_what_nobody_owns)
{
	struct error error;

	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), 0);
	cr_expect_eq(may_publish(OTHER, 0, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "to publish into model \"m\" needs the role publisher");
}

/* Nobody owns a region that is not there. */
Test(access_change, a_refused_region_is_called_a_region)
{
	const int other = connect_uid(OTHER, 0);
	struct session *s = server->net.sessions;
	struct error error;

	cr_expect_eq(access_make_region(s, "kv", &error), -EACCES);
	cr_expect_str_eq(error.message, "to make the region \"kv\" needs the role publisher");
	rule("model.1", "match", "kv");
	rule("model.1", "publish", "61002");
	cr_expect_eq(access_make_region(s, "kv", &error), -EACCES);
	cr_expect_str_eq(error.message,
			 "[model.1] of gpuwmd's configuration does not let uid 61003 make the region \"kv\"");
	cr_expect_null(strstr(error.detail, "owner"), "%s", error.detail);
	close(other);
}

Test(access_change, of_an_owned_model_other_publishers_keep_off)
{
	struct error error;

	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(OWNER, 0, "m", &error), 0, "also without the group");
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "model \"m\" belongs to uid 61001: uid 61003 may not publish into it");
}

Test(access_change, a_refusal_does_not_tell_who_owns_what_is_hidden)
{
	struct error error;

	rule("model.1", "match", "m");
	rule("model.1", "attach", "61002");
	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message, "uid 61003 may not publish into model \"m\"");
}

/* What a session without any right is told when it publishes, claims and takes a claim again. */
static const char *refusals_of(int sock)
{
	static char text[4 * TEXT_BYTES_MAX];
	const struct session *s = server->net.sessions;
	struct request request = {.server = server, .session = server->net.sessions};
	struct error error;
	size_t used = 0;

	cr_assert_eq(access_publish(request.session, "s", &error), -EACCES);
	used += (size_t)snprintf(text + used, sizeof(text) - used, "%s|%s|", error.message, error.detail);
	cr_assert_eq(ASK(sock, "claim", TEXT("name", "s@v9")), -EACCES);
	used += (size_t)snprintf(text + used, sizeof(text) - used, "%s|", message.error.message);
	cr_assert_eq(s->peer.uid, OTHER);
	cr_assert_eq(claim_resume(&request, "s@v1", &error), -EACCES);
	snprintf(text + used, sizeof(text) - used, "%s|", error.message);
	return text;
}

/* Under rules of which `key` names another user. */
static void expect_same_refusals(const char *key)
{
	int other = connect_uid(OTHER, 0);
	char before[4 * TEXT_BYTES_MAX];

	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	rule("model.1", key, "61002");
	strcpy(before, refusals_of(other));
	owned("s", "v1", OWNER);
	cr_expect_str_eq(refusals_of(other), before);
	close(other);
}

Test(access_change, a_refused_publish_does_not_tell_that_a_hidden_model_is_there)
{
	expect_same_refusals("attach");
}

Test(access_change, nor_does_a_publish_that_the_section_refuses)
{
	expect_same_refusals("publish");
}

Test(access_change, a_section_with_publish_names_all_who_publish)
{
	struct error error;

	rule("model.2", "match", "m*");
	rule("model.2", "publish", "61002");
	cr_expect_eq(may_publish(NAMED, 0, "m", &error), 0, "needs no group");
	cr_expect_eq(may_publish(NAMED, 0, "x", &error), -EACCES, "of that section's models only");
	cr_expect_eq(may_publish(OTHER, ROLE_PUBLISHER, "m", &error), -EACCES);
	cr_expect_str_eq(error.message,
			 "[model.2] of gpuwmd's configuration does not let uid 61003 publish into model \"m\"");
	owned("m", "v1", OWNER);
	cr_expect_eq(may_publish(NAMED, 0, "m", &error), 0, "whoever owns it");
}

Test(access_change, the_owner_and_the_named_move_aliases)
{
	int owner = connect_uid(OWNER, 0), named = connect_uid(NAMED, 0),
	    other = connect_uid(OTHER, ROLE_PUBLISHER);

	owned("m", "v1", OWNER);
	owned("m", "v2", OWNER);
	rule("model.1", "match", "m");
	rule("model.1", "publish", "61002");
	cr_expect_eq(swap(owner, "m", "v2"), 0);
	cr_expect_eq(swap(named, "m", "v1"), 0);
	cr_expect_eq(swap(other, "m", "v2"), -EACCES);
	cr_expect_eq(ASK(other, "hot_swap", TEXT("model", "m")), -EACCES, "nor removes one");
	cr_expect_str_eq(message.error.message,
			 "model \"m\" belongs to uid 61001: uid 61003 may not move aliases of it");
}

Test(access_change, others_retire_only_what_they_published)
{
	int owner = connect_uid(OWNER, 0), other = connect_uid(OTHER, ROLE_PUBLISHER);

	owned("m", "v1", OWNER);
	owned("m", "v2", OTHER);
	owned("m", "v3", OTHER);
	owned("m", "v4", OWNER);
	cr_expect_eq(retire(other, "m@v4"), -EACCES);
	cr_expect_str_eq(message.error.message, "m@v4 was published by uid 61001: uid 61003 may not retire it");
	cr_expect_eq(retire(other, "m@v2"), 0);
	cr_expect_eq(retire(owner, "m@v3"), 0, "the owner: any of it");
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 2);
}

static int retire_by_force(int sock, const char *ref)
{
	return ASK(sock, "retire", TEXT("ref", ref), FLAG("force", true));
}

Test(access_change, a_retire_by_force_is_for_those_who_operate)
{
	int owner = connect_uid(OWNER, ROLE_PUBLISHER), named = connect_uid(NAMED, 0),
	    other = connect_uid(OTHER, 0), admin = greeted(SESSION_ADMIN);

	owned("m", "v1", OWNER);
	owned("m", "v2", OWNER);
	owned("m", "v3", OWNER);
	rule("model.1", "match", "m");
	rule("model.1", "operate", "61002");
	rule("model.1", "publish", "61003");
	cr_expect_eq(retire_by_force(owner, "m@v2"), -EACCES);
	cr_expect_str_eq(message.error.message, "retire with force needs the role operator for model \"m\"");
	cr_expect_eq(retire_by_force(other, "m@v2"), -EACCES, "publish does not do");
	cr_expect_eq(retire_by_force(named, "m@v2"), 0);
	cr_expect_eq(retire_by_force(admin, "m@v3"), 0);
}

Test(access_change, a_version_of_a_hidden_model_is_retired_by_who_published_it)
{
	int other = connect_uid(OTHER, 0);
	struct version *second;
	char id[VERSION_ID_TEXT];

	owned("s", "v1", OWNER);
	owned("s", "v2", OTHER);
	second = owned("s", "v3", OTHER);
	owned("s", "o", OTHER)->by_operator = true;
	rule("model.1", "match", "s");
	rule("model.1", "attach", "61002");
	cr_expect_eq(retire(other, "s@v1"), -ENOENT);
	cr_expect_eq(retire(other, "s@o"), -ENOENT, "an operator with this uid made it");
	cr_expect_eq(retire(other, "s@v2"), 0);
	hex128_format(second->id.bytes, id);
	cr_expect_eq(retire(other, id), 0);
	TURN_UNTIL(registry_counts(server->ledger.registry).versions == 2);
	cr_expect_eq(retire(other, "s@v2"), -ENOENT);
	cr_expect_str_eq(message.error.message, "no model \"s\"");
}

Test(access_change, pins_and_verifies_are_for_those_who_operate)
{
	int owner = connect_uid(OWNER, ROLE_PUBLISHER), named = connect_uid(NAMED, 0);

	owned("m", "v1", OWNER);
	rule("model.1", "match", "m");
	rule("model.1", "operate", "61002");
	cr_expect_eq(pin(owner, "m"), -EACCES);
	cr_expect_eq(ASK(owner, "verify", TEXT("ref", "m")), -EACCES);
	cr_expect_str_eq(message.error.message, "verify needs the role operator for model \"m\"");
	cr_expect_eq(pin(named, "m"), 0);
	cr_expect_eq(ASK(named, "unpin_version", TEXT("ref", "m"), TEXT("pin", "p")), 0);
	cr_expect_eq(ASK(named, "verify", TEXT("ref", "m"), TEXT("device", "x")), -ENODEV);
}

Test(access_change, what_an_operator_made_is_operated_on_the_admin_socket)
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
	cr_expect_eq(access_publish(server->net.sessions->next, "m", NULL), 0, "it publishes, as ever");
	cr_expect_eq(swap(admin, "m", "v2"), 0);
}

/* The code of a publish_begin. */
static int begin(int sock, const char *name, const char *alias)
{
	struct message_writer w;

	begin_request(&w, 1, "publish_begin");
	message_put_text(&w, "name", name);
	message_put_text(&w, "device", DEVICE_HOST);
	message_put_u64(&w, "bytes", 0);
	if (alias)
		message_put_text(&w, "alias", alias);
	send_request(sock, &w);
	return answered(sock);
}

Test(access_change, a_publish_with_an_alias_needs_the_right_to_move_aliases)
{
	int same_uid = connect_uid(0, ROLE_PUBLISHER), owner = connect_uid(OWNER, 0);
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);

	publish->version->by_operator = true;
	complete(publish, part, 1);
	owned("n", "v1", OWNER);
	cr_expect_eq(begin(same_uid, "m@v2", "current"), -EACCES);
	cr_expect_str_eq(message.error.message,
			 "model \"m\" belongs to operators: uid 0 may not move aliases of it on this socket");
	cr_expect_eq(begin(same_uid, "m@v2", NULL), 0, "%s", message.error.message);
	cr_expect_eq(begin(same_uid, "new@v1", "prod"), 0, "nobody owns it: %s", message.error.message);
	cr_expect_eq(begin(owner, "n@v2", "prod"), 0, "%s", message.error.message);
	cr_expect_gt(publish_next(server->ledger.publishes, NULL)->group_count, 0,
		     "who asks later knows the groups");
}

/* The code of an abort of the publish. */
static int abort_of(int sock, const struct publish *publish)
{
	return ASK(sock, "publish_abort", ID("publish", publish->id.bytes));
}

Test(access_change, a_publish_of_an_operator_is_not_there_for_the_operators_uid)
{
	int same_uid = connect_uid(0, ROLE_PUBLISHER), joiner = connect_uid(NAMED, 0),
	    admin = greeted(SESSION_ADMIN);
	struct joiners joiners = {.uid_count = 1, .uids = {NAMED}};
	struct publish_part *part;
	struct publish *publish = building("m", "v1", &part);
	const struct session *s = server->net.sessions;

	cr_assert_eq(version_set_joiners(publish->version, &joiners), 0);
	cr_expect(may_take_part(s->next->next, publish->version), "it is of this user");
	publish->version->by_operator = true;
	cr_expect_not(may_take_part(s->next->next, publish->version));
	cr_expect(may_take_part(s->next, publish->version), "who is named");
	cr_expect(may_take_part(s, publish->version));
	cr_expect_eq(abort_of(same_uid, publish), -ENOENT);
	cr_expect(strstr(message.error.message, "no open publish"), "%s", message.error.message);
	cr_expect_eq(abort_of(admin, publish), 0);
	close(joiner);
}

/* Whether `clients` tells the session of publishes, in all its entries or in none. */
static bool is_told_publishes(int sock)
{
	cr_assert_eq(ask(sock, "clients"), 0);
	return memmem(packet.data, packet.bytes, "\251publishes\335\0\0\0\1", 15);
}

Test(access_change, clients_tells_ids_of_publishes_to_operators_only)
{
	int observer = connect_uid(OTHER, ROLE_OBSERVER), admin = greeted(SESSION_ADMIN);
	struct publish_part *part;

	building("m", "v1", &part);
	part->publisher = server->net.sessions;
	cr_expect(is_told_publishes(admin));
	cr_expect_not(is_told_publishes(observer));
}

/* A model that another one came to own while a publish with an alias was open. */
Test(access_change, an_alias_is_not_moved_for_who_was_overtaken)
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
	cr_expect(strstr(late->error.message, "model \"m\" belongs to uid 61001: uid 61003 may not"), "%s",
		  late->error.message);
	cr_expect_eq(first->alias_count, 1);
}

/* A publish into OWNER's model with the alias current, by uid NAMED with this group. */
static struct version *late_publish(gid_t group, const char *before, const char *after)
{
	struct publish_part *part;
	struct publish *publish;

	owned("m", "v1", OWNER);
	publish = building("m", "v2", &part);
	strcpy(publish->alias, "current");
	publish->version->owner = NAMED;
	publish->groups = calloc(1, sizeof(gid_t));
	publish->groups[0] = group;
	publish->group_count = 1;
	rule("model.1", "match", "m");
	rule("model.1", "publish", before);
	if (after) {
		rules_clear(&config.rules);
		rule("model.1", "match", "m");
		rule("model.1", "publish", after);
	}
	return complete(publish, part, 1);
}

Test(access_change, an_alias_is_moved_for_the_named)
{
	cr_expect_eq(late_publish(7, "61002", NULL)->alias_count, 1);
}

Test(access_change, an_alias_is_moved_for_a_named_group)
{
	cr_expect_eq(late_publish(7, "61002", "@7")->alias_count, 1);
}

Test(access_change, an_alias_is_not_moved_for_who_lost_the_right_by_a_reload)
{
	const struct version *version = late_publish(7, "61002", "61003");

	cr_expect_eq(version->state, VERSION_READY);
	cr_expect_eq(version->alias_count, 0);
	cr_expect_eq(version->error.code, -EACCES);
	cr_expect(strstr(version->error.message,
			 "its alias current was not moved: model \"m\" belongs to uid 61001"),
		  "%s", version->error.message);
}

Test(access_change, an_alias_of_an_operators_model_is_not_moved_for_its_uid)
{
	struct publish_part *part, *late_part;
	struct publish *late = building("m", "v2", &late_part), *first = building("m", "v1", &part);
	struct version *version;

	strcpy(late->alias, "current");
	first->version->by_operator = true;
	complete(first, part, 1);
	version = complete(late, late_part, 1);
	cr_expect_eq(version->error.code, -EACCES);
	cr_expect(strstr(version->error.message, "model \"m\" belongs to operators"), "%s",
		  version->error.message);
}

Test(access_change, a_verify_is_told_to_who_began_it)
{
	int named = connect_uid(NAMED, 0), other = connect_uid(OTHER, 0);
	struct job *job;
	struct error error;

	cr_assert_eq(
		job_new(&server->work, &(struct job_wish){JOB_VERIFY, "m", "v1", NAMED, true}, &job, &error),
		0);
	for (int i = 0; i < 2; i++) {
		int sock = i ? other : named;

		cr_expect_eq(ASK(sock, "jobs", NUMBER("job", job->id)), i ? -EACCES : 0);
	}
	cr_expect_eq(ask(named, "jobs"), -EACCES, "not all of them");
	job_drop(&server->work.jobs, job);
}
