/* Publishers of several users: who may take part in whose publish, what each may hold, and for how long. */
#include "raw.h"

#include "kept.h"
#include "user.h"

#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(publishers);

#define OWNER 61001
#define OTHER 61002
#define GROUP "daemon" /* of publishers; Debian's gid 1 */
#define TEAM 2000
#define SCENE_FLAGS "--set", "socket.mode=0666", "--set", "access.publish_group=" GROUP

/* A connection of another user: the kernel tells gpuwmd who connected, not who writes. team: a group besides. */
static int client_as(const struct gpuwmd *d, uid_t uid, gid_t team)
{
	const struct group *publishers = getgrnam(GROUP);
	gid_t groups[] = {publishers->gr_gid, team};
	int sock;

	cr_assert_eq(setgroups(team ? 2 : 1, groups), 0);
	cr_assert(setegid(uid) == 0 && seteuid(uid) == 0);
	sock = raw_client(d->socket);
	cr_assert(seteuid(0) == 0 && setegid(0) == 0 && setgroups(0, NULL) == 0);
	return sock;
}

struct begin {
	const char *name;
	uint64_t bytes;
	uint32_t rank, world;
	const uint8_t *join; /* NULL: a new one */
	uid_t join_uid;
	gid_t join_gid; /* 0: none */
	int64_t wait_ms;
};

static void put_id(struct message_writer *w, const char *key, uint32_t id)
{
	message_begin_array(w, key);
	if (id)
		message_put_u64(w, NULL, id);
	message_end(w);
}

static void begin_ask(int sock, const struct begin *what)
{
	struct message_writer w;

	raw_request(&w, 2, "publish_begin");
	message_put_text(&w, "name", what->name);
	message_put_text(&w, "device", "host");
	message_put_u64(&w, "bytes", what->bytes);
	message_put_u64(&w, "rank", what->rank);
	message_put_u64(&w, "world", what->world ? what->world : 1);
	if (what->join)
		message_put_hex128(&w, "publish", what->join);
	if (what->join_uid || what->join_gid) {
		message_begin_map(&w, "join");
		put_id(&w, "uids", what->join_uid);
		put_id(&w, "gids", what->join_gid);
		message_end(&w);
	}
	message_put_i64(&w, "wait_ms", what->wait_ms);
	raw_send(sock, &w);
}

/* The code of the answer; p->sock is sock then. */
static int begin_answer(struct raw_publish *p, int sock, const struct begin *what)
{
	static struct raw_reply reply;
	struct fields f;
	int code;

	*p = (struct raw_publish){
		.sock = sock, .checker = -1, .segment = -1, .index = -1, .bytes = what->bytes};
	strcpy(p->device, "host");
	cr_assert(raw_receive(sock, &reply));
	code = reply.message.error.code;
	raw_refused_with(&reply.message.error);
	if (code == 0) {
		fields_of(&f, reply.message.body);
		fields_hex128(&f, "publish", p->id);
		cr_assert_eq(packet_take_fd(&reply.packet, fields_u64(&f, "checker"), &p->checker), 0);
	}
	raw_reply_clear(&reply);
	return code;
}

static int begin(struct raw_publish *p, int sock, const struct begin *what)
{
	begin_ask(sock, what);
	return begin_answer(p, sock, what);
}

/* From a whole begin to a version that is ready: the first code that is none. */
static int publish(struct raw_publish *p, int sock, const char *name, uint64_t bytes)
{
	int code = begin(p, sock, &(struct begin){.name = name, .bytes = bytes});

	if (code == 0) {
		raw_publish_fill(p);
		code = raw_hand_in(p);
	}
	return code == 0 ? raw_commit(p) : code;
}

/* All but the connection. */
static void publish_end(struct raw_publish *p)
{
	p->sock = -1;
	raw_publish_end(p);
}

static struct gpuwmd *scene(const char *limit)
{
	NEEDS_ROOT();
	return limit ? gpuwmd_start(SCENE_FLAGS, "--set", limit, NULL) : gpuwmd_start(SCENE_FLAGS, NULL);
}

/* The bytes that `clients` tells of the user. */
static uint64_t charged_to(struct gpuwmd *d, uid_t uid)
{
	json_t *clients = query(d->admin, "clients", NULL);
	const json_t *user;
	uint64_t bytes = 0;
	size_t i;

	json_array_foreach(json_object_get(clients, "users"), i, user) {
		if (json_integer_value(json_object_get(user, "uid")) == uid)
			bytes = (uint64_t)json_integer_value(json_object_get(user, "bytes"));
	}
	json_decref(clients);
	return bytes;
}

/* ---- whose publish it is ------------------------------------------------- */

/* The answer to one who may not is the answer to one who guesses. */
GPUWMD_TEST_BY(publishers, a_leaked_id_is_of_no_use_to_another_user, scene(NULL), gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0), other = client_as(d, OTHER, 0);
	struct raw_publish first, joined, stolen;
	char unknown[1024];

	cr_assert_eq(begin(&first, owner, &(struct begin){.name = "m@v1", .bytes = KB(4), .world = 2}), 0);
	stolen = first;
	stolen.sock = other;
	cr_assert_eq(
		begin(&joined, other, &(struct begin){.name = "m@v1", .rank = 1, .world = 2, .join = first.id}),
		-ENOENT);
	cr_assert_eq(begin(&joined, other,
			   &(struct begin){.name = "no@v1", .rank = 1, .world = 2, .join = first.id}),
		     -ENOENT, "nor does it tell the publish's name");
	cr_assert_eq(raw_publish_abort(&stolen), -ENOENT);
	cr_assert_eq(raw_commit(&stolen), -ENOENT);
	snprintf(unknown, sizeof unknown, "%s", raw_refusal());
	stolen.id[0] ^= 1;
	cr_assert_eq(raw_commit(&stolen), -ENOENT);
	cr_assert_str_eq(raw_refusal(), unknown);
	cr_assert_eq(raw_publish_abort(&first), 0, "it goes on");
	publish_end(&first);
	close(owner);
	close(other);
}

static void joins(const struct begin *first_begin, uid_t uid, gid_t team)
{
	struct gpuwmd *d = scene(NULL);
	int owner = client_as(d, OWNER, 0), other = client_as(d, uid, team);
	struct raw_publish first, second;
	struct begin join = {.name = "m@v1", .bytes = KB(4), .rank = 1, .world = 2};

	cr_assert_eq(begin(&first, owner, first_begin), 0);
	join.join = first.id;
	cr_assert_eq(begin(&second, other, &join), 0);
	cr_assert_eq(raw_publish_abort(&second), 0, "who takes part may abort it");
	publish_end(&first);
	publish_end(&second);
	close(owner);
	close(other);
	gpuwmd_stop_empty(d);
}

Test(publishers, a_named_user_joins)
{
	joins(&(struct begin){.name = "m@v1", .bytes = KB(4), .world = 2, .join_uid = OTHER}, OTHER, 0);
}

Test(publishers, a_named_group_joins)
{
	joins(&(struct begin){.name = "m@v1", .bytes = KB(4), .world = 2, .join_gid = TEAM}, OTHER, TEAM);
}

Test(publishers, another_process_of_the_user_joins)
{
	joins(&(struct begin){.name = "m@v1", .bytes = KB(4), .world = 2}, OWNER, 0);
}

GPUWMD_TEST_BY(publishers, a_commit_is_repeated_by_its_user_only, scene(NULL), gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0);
	struct raw_publish p, again;

	cr_assert_eq(publish(&p, owner, "m@v1", KB(4)), 0, "%s", raw_refusal());
	again = p;
	again.sock = client_as(d, OTHER, 0);
	cr_assert_eq(raw_commit(&again), -ENOENT);
	close(again.sock);
	again.sock = client_as(d, OWNER, 0);
	cr_assert_eq(raw_commit(&again), 0, "%s", raw_refusal());
	close(again.sock);
	publish_end(&p);
	close(owner);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(publishers, an_operator_aborts_anybodys_publish, scene(NULL), gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0);
	struct raw_publish p, operators;

	cr_assert_eq(begin(&p, owner, &(struct begin){.name = "m@v1", .bytes = KB(4)}), 0);
	operators = p;
	operators.sock = raw_client(d->admin_socket);
	cr_assert_eq(raw_publish_abort(&operators), 0, "%s", raw_refusal());
	close(operators.sock);
	publish_end(&p);
	close(owner);
}

/* ---- claims after a restart ---------------------------------------------- */

static int claim(int sock, const char *name, int64_t wait_ms)
{
	return RAW_ASK(sock, "claim", TEXT("name", name), SIGNED("wait_ms", wait_ms));
}

/* The code of the one claim. */
static int claim_resume(int sock, const char *name)
{
	static struct raw_reply reply;
	struct error error = {0};
	struct message_writer w;
	struct fields f, answer;
	uint32_t count;

	raw_request(&w, 5, "resume");
	message_begin_array(&w, "leases");
	message_end(&w);
	message_begin_array(&w, "claims");
	message_put_text(&w, NULL, name);
	message_end(&w);
	raw_send(sock, &w);
	cr_assert(raw_receive(sock, &reply));
	fields_of(&f, reply.message.body);
	fields_of(&answer, fields_array(&f, "claims", &count));
	cr_assert_eq(count, 1);
	fields_error(&answer, "error", &error);
	raw_reply_clear(&reply);
	return error.code;
}

#define KEPT_FLAGS "[socket]\nmode = 0666\n[access]\npublish_group = " GROUP "\n"
/* Keeps claims of two users until the test is over. */
#define KEPT_CLAIMS "grace_ms = 600000\nclaims_per_uid = 2\n" KEPT_FLAGS

static struct gpuwmd *kept_scene(const char *limits)
{
	NEEDS_ROOT();
	return gpuwmd_start_kept(&(struct kept){.limits = limits});
}

KILL_AND_STOP_TEST(publishers, a_claim_stays_with_its_user_after)
{
	struct gpuwmd *d = kept_scene(KEPT_CLAIMS);
	int owner = client_as(d, OWNER, 0), other;

	cr_assert_eq(claim(owner, "m@v1", 0), 0);
	kept_kill(d, signal_number);
	close(owner);
	owner = client_as(d, OWNER, 0);
	other = client_as(d, OTHER, 0);
	cr_assert_eq(status_of(d, "claims"), 1);
	cr_assert_eq(claim_resume(other, "m@v1"), -EACCES);
	cr_assert_eq(claim(other, "m@v1", 0), -ETIMEDOUT);
	cr_assert(strstr(raw_refusal(), "uid 61001"), "%s", raw_refusal());
	cr_assert_eq(claim(other, "m@v2", 0), 0, "what nobody had claimed needs no waiting");
	/* It is charged while it is reserved. */
	cr_assert_eq(claim(owner, "m@v3", 0), 0);
	cr_assert_eq(claim(owner, "n@v4", 0), -EDQUOT);
	cr_assert_eq(claim_resume(owner, "m@v1"), 0);
	cr_assert_eq(claim_resume(owner, "m@v1"), 0, "it is its own by now");
	cr_assert_eq(claim_resume(other, "m@v1"), -EBUSY);
	close(owner);
	close(other);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(publishers, a_claim_that_was_begun_is_kept_for_nobody, kept_scene(KEPT_CLAIMS),
	       gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0), other;
	struct raw_publish p;

	cr_assert_eq(claim(owner, "m@v1", 0), 0);
	cr_assert_eq(begin(&p, owner, &(struct begin){.name = "m@v1", .bytes = KB(4)}), 0);
	kept_kill(d, SIGKILL);
	other = client_as(d, OTHER, 0);
	cr_assert_eq(claim(other, "m@v1", 0), 0, "%s", raw_refusal());
	publish_end(&p);
	close(owner);
	close(other);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "claims") == 0));
}

/* ---- what each may hold -------------------------------------------------- */

/* The limit refuses the owner's second publish, and nobody else's. */
static void meets(const char *limit, const char *key, const char *figure)
{
	struct gpuwmd *d = scene(limit);
	int owner = client_as(d, OWNER, 0), other = client_as(d, OTHER, 0), admin = raw_client(d->admin_socket);
	struct raw_publish all[4], *const first = &all[0], *const second = &all[1];

	cr_assert_eq(publish(first, owner, "m@v1", KB(8)), 0, "%s", raw_refusal());
	cr_assert_eq(publish(second, owner, "m@v2", KB(8)), -EDQUOT, "%s", raw_refusal());
	if (second->checker < 0) /* begin's own reply is not kept */
		raw_publish_begin_by(second, owner, "m@v2", "host", KB(8));
	cr_assert(strstr(raw_refusal(), "uid 61001"), "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), figure), "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), key) && strstr(raw_refusal(), "an operator may raise"), "%s",
		  raw_refusal());
	cr_assert_eq(publish(&all[2], admin, "m@v3", KB(8)), 0, "an operator is free of it: %s", raw_refusal());
	cr_assert_eq(publish(&all[3], other, "n@v4", KB(8)), 0, "%s", raw_refusal());
	for (size_t i = 0; i < 4; i++)
		publish_end(&all[i]);
	DROP(d, "m@v1");
	cr_assert_eq(publish(first, owner, "m@v5", KB(8)), 0, "what is freed may be used again");
	publish_end(first);
	DROP(d, "m@v3", "n@v4", "m@v5");
	close(owner);
	close(other);
	close(admin);
	gpuwmd_stop_empty(d);
}

Test(publishers, versions_of_a_user_are_bounded)
{
	meets("limits.versions_per_uid=1", "versions_per_uid", "all 1 versions");
}

Test(publishers, bytes_of_a_user_are_bounded)
{
	meets("limits.bytes_per_uid=12K", "bytes_per_uid", "may have 12.0 KiB of memory; it has 8.0 KiB");
}

Test(publishers, descriptors_of_a_user_are_bounded)
{
	meets("limits.fds_per_uid=3", "fds_per_uid", "may have 3 descriptors in the store; it has 2");
}

Test(publishers, indices_of_a_user_are_bounded)
{
	meets("limits.index_bytes_per_uid=300", "index_bytes_per_uid", "may have 300 B of indices; it has ");
}

GPUWMD_TEST_BY(publishers, limits_of_a_user_hold_after_a_restart,
	       kept_scene("grace_ms = 300\nversions_per_uid = 2\n" KEPT_FLAGS), gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0);
	struct raw_publish p;

	cr_assert_eq(publish(&p, owner, "m@v1", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	cr_assert_eq(publish(&p, owner, "m@v2", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	kept_kill(d, SIGKILL);
	close(owner);
	owner = client_as(d, OWNER, 0);
	cr_assert_eq(publish(&p, owner, "m@v3", KB(4)), -EDQUOT);
	DROP(d, "m@v1");
	cr_assert_eq(publish(&p, owner, "m@v3", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	DROP(d, "m@v2", "m@v3");
	close(owner);
}

/* The room that only the owner's version m@v1 takes comes back when the grace time is over: it is retired, and not freed yet. */
static int kept_without_room(struct gpuwmd *d)
{
	int owner = client_as(d, OWNER, 0);
	struct raw_publish p;

	cr_assert_eq(publish(&p, owner, "m@v1", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	kept_kill(d, SIGKILL);
	close(owner);
	OK(swap_to(d, "m", NULL, true)); /* retires it */
	return client_as(d, OWNER, 0);
}

/* By force a version is freed in the grace time too. */
static void drop_at_once(struct gpuwmd *d, const char *model, const char *ref)
{
	OK(swap_to(d, model, NULL, false));
	OK(gpuwm_retire_by_force(d->admin, ref, 0, SOON_MS));
}

/* No test waits until this grace time is over. */
#define KEPT_TWO_FDS "grace_ms = 60000\nfds_per_uid = 3\n" KEPT_FLAGS

GPUWMD_TEST_BY(publishers, a_refusal_in_the_grace_time_says_what_comes_back, kept_scene(KEPT_TWO_FDS),
	       gpuwmd_stop_empty)
{
	int owner = kept_without_room(d);
	struct raw_publish p;

	cr_assert_eq(begin(&p, owner, &(struct begin){.name = "m@v2", .bytes = KB(4)}), -EDQUOT);
	cr_assert(strstr(raw_refusal(), "1 version of uid 61001 is freed "), "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), " ms from now, which gives 2 descriptors in the store back"), "%s",
		  raw_refusal());
	/* The same refusal comes when the time is over. */
	cr_assert_eq(begin(&p, owner, &(struct begin){.name = "m@v2", .bytes = KB(4), .wait_ms = 200}),
		     -EDQUOT);
	cr_assert(strstr(raw_refusal(), "1 version of uid 61001 is freed "), "%s", raw_refusal());
	OK(gpuwm_retire_by_force(d->admin, "m@v1", 0, SOON_MS));
	cr_assert_eq(publish(&p, owner, "m@v3", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	drop_at_once(d, "m", "m@v3");
	close(owner);
}

GPUWMD_TEST_BY(publishers, a_begin_with_a_time_waits_for_what_comes_back, kept_scene(KEPT_TWO_FDS),
	       gpuwmd_stop_empty)
{
	const struct begin second = {.name = "m@v2", .bytes = KB(4), .wait_ms = -1};
	int owner = kept_without_room(d), gone = client_as(d, OWNER, 0), none = client_as(d, OTHER, 0);
	struct raw_publish p;

	/* What does not come back is not waited for. */
	cr_assert_eq(publish(&p, none, "n@v1", KB(4)), 0, "%s", raw_refusal());
	publish_end(&p);
	cr_assert_eq(begin(&p, none, &(struct begin){.name = "n@v2", .bytes = KB(4), .wait_ms = -1}), -EDQUOT);
	begin_ask(owner, &second);
	begin_ask(gone, &(struct begin){.name = "m@v3", .bytes = KB(4), .wait_ms = -1});
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 2));
	close(gone);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	kept_kill(d, SIGTERM);
	cr_assert_eq(begin_answer(&p, owner, &second), -ECONNRESET,
		     "it stops, and the next one is to be asked");
	close(owner);
	owner = client_as(d, OWNER, 0);
	begin_ask(owner, &second);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "waiting") == 1));
	OK(gpuwm_retire_by_force(d->admin, "m@v1", 0, SOON_MS));
	cr_assert_eq(begin_answer(&p, owner, &second), 0, "%s", raw_refusal());
	cr_assert_eq(raw_publish_abort(&p), 0);
	publish_end(&p);
	close(owner);
	close(none);
	drop_at_once(d, "n", "n@v1");
}

/* ---- for how long -------------------------------------------------------- */

#define QUICK scene("limits.publish_silence_ms=300")

/* All that users may have of the device, and nothing behind it. */
GPUWMD_TEST_BY(publishers, a_grant_ends_with_the_signs_of_life, QUICK, gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0), other = client_as(d, OTHER, 0);
	const json_t *device, *error;
	json_t *status = query(d->admin, "status", NULL), *entry;
	struct raw_publish greedy, next;
	uint64_t budget;

	device = json_array_get(json_object_get(status, "devices"), 0);
	budget = (uint64_t)json_integer_value(json_object_get(device, "budget"));
	budget -= budget / 8;
	json_decref(status);
	cr_assert_eq(begin(&greedy, owner, &(struct begin){.name = "all@v1", .bytes = budget}), 0);
	cr_assert_eq(begin(&next, other, &(struct begin){.name = "m@v1", .bytes = KB(4)}), -ENOSPC);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "publishes") == 0));
	entry = version_entry(d, "all", "v1");
	error = json_object_get(entry, "error");
	cr_assert_str_eq(json_string_value(json_object_get(error, "code")), "ETIMEDOUT");
	cr_assert(strstr(json_string_value(json_object_get(error, "message")), "no sign of life for 300 ms"));
	cr_assert(strstr(json_string_value(json_object_get(error, "detail")), "publish_silence_ms"));
	json_decref(entry);
	cr_assert_eq(publish(&next, other, "m@v1", KB(4)), 0, "%s", raw_refusal());
	publish_end(&greedy);
	publish_end(&next);
	close(owner);
	close(other);
	DROP(d, "m@v1");
}

/* argv: how long it computes before it commits, in milliseconds. */
static int builder(int argc, char **argv)
{
	struct gpuwm_publish *made;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1 && gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(publish_begin(client, "host", "m@v1", SMALL(1), &made) == 0);
	CHILD_ASSERT(publish_fill(made, SMALL(1)) == 0);
	child_say('b');
	usleep((useconds_t)atoi(argv[0]) * 1000);
	CHILD_ASSERT(gpuwm_publish_commit(made, NULL) == 0);
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_BY(publishers, a_slow_builder_lives_by_the_librarys_signs, QUICK, gpuwmd_stop_empty)
{
	struct process p = process_start(builder, "2500", NULL);

	process_expect(&p, 'b');
	process_finish(&p);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(publishers, a_stopped_publishers_grant_ends, QUICK, gpuwmd_stop_empty)
{
	struct process p = process_start(builder, "600000", NULL);

	process_expect(&p, 'b');
	cr_assert_eq(status_of(d, "publishes"), 1);
	cr_assert_eq(kill(p.pid, SIGSTOP), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "publishes") == 0));
	cr_assert(version_is(d, "m", "v1", "failed"));
	process_kill(&p, SIGKILL);
}

/* It gives no signs of life, but for that it lives. */
GPUWMD_TEST_BY(publishers, a_grant_ends_where_only_the_connection_does, QUICK, gpuwmd_stop_empty)
{
	int owner = client_as(d, OWNER, 0);
	struct raw_publish p;

	cr_assert_eq(begin(&p, owner, &(struct begin){.name = "m@v1", .bytes = KB(64)}), 0);
	cr_assert_eq(charged_to(d, OWNER), KB(64));
	raw_publish_end(&p);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed")));
	cr_assert(EVENTUALLY(SOON_MS, charged_to(d, OWNER) == 0));
}

/* ---- checkers ------------------------------------------------------------ */

#define HOSTILE_USERS 4
#define HOSTILE_EACH PUBLISHES_PER_UID_MAX

/* Each has as many open publishes as it may, and hands nothing in. */
GPUWMD_TEST_BY(publishers, idle_ones_keep_no_checker_from_an_honest_one, scene(NULL), gpuwmd_stop_empty)
{
	static struct raw_publish idle[HOSTILE_USERS * HOSTILE_EACH];
	int socks[HOSTILE_USERS], owner = client_as(d, OWNER, 0);
	struct raw_publish honest;
	int64_t began;
	char name[32];

	for (int i = 0; i < HOSTILE_USERS * HOSTILE_EACH; i++) {
		int user = i / HOSTILE_EACH;

		if (i % HOSTILE_EACH == 0)
			socks[user] = client_as(d, 3000 + (uid_t)user, 0);
		snprintf(name, sizeof name, "idle@v%d", i);
		cr_assert_eq(begin(&idle[i], socks[user], &(struct begin){.name = name, .bytes = KB(4)}), 0);
	}
	began = clock_ms();
	cr_assert_eq(publish(&honest, owner, "m@v1", KB(4)), 0, "%s", raw_refusal());
	cr_assert_lt(clock_ms() - began, SANITIZED ? 5000 : 1000);
	for (int i = 0; i < HOSTILE_USERS * HOSTILE_EACH; i++) {
		cr_assert_eq(raw_publish_abort(&idle[i]), 0, "%s", raw_refusal());
		publish_end(&idle[i]);
	}
	for (int i = 0; i < HOSTILE_USERS; i++)
		close(socks[i]);
	publish_end(&honest);
	close(owner);
	DROP(d, "m@v1");
}

/* ---- descriptors that nobody reads ------------------------------------------ */

#define HOARDER 61004 /* the kernel counts per user: no other test's */

GPUWMD_TEST_IF(publishers, one_whose_descriptors_nobody_reads_is_told_so, NEEDS_ROOT(),
	       gpuwmd_start(SCENE_FLAGS, NULL), gpuwmd_stop_empty)
{
	char number[16], group[16];
	struct process hoarder;

	snprintf(number, sizeof number, "%d", HOARDER);
	snprintf(group, sizeof group, "%u", getgrnam(GROUP)->gr_gid);
	hoarder = process_start(user, number, group, NULL);
	DOES(&hoarder, "hoard 64");
	REFUSED(ETOOMANYREFS, &hoarder, "publish m@v1");
	cr_expect(strstr(said, "sending failed: Too many references: cannot splice|"), "%s", said);
	cr_expect(strstr(said, "raise the soft limit of open files (ulimit -Sn)"), "%s", said);
	/* The connection goes on. */
	DOES(&hoarder, "unhoard");
	DOES(&hoarder, "publish m@v2");
	user_end(&hoarder);
	DROP(d, "m@v2");
}
