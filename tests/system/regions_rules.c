/* Regions: who sees and opens them, what a user may have, and what a hostile one can do. */
#include "region_raw.h"
#include "user.h"

#include "tests/support/any/own_folder.h"

#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

SYSTEM_SUITE(regions_rules);

/* ---- rules ------------------------------------------------------------ */

static struct gpuwmd *with_rules(void)
{
	static const char rules[] = "[model.1]\nmatch = shared/*\nattach = 61002\npublish = 61001\n";
	char path[64];
	struct gpuwmd *d;
	FILE *file;

	snprintf(path, sizeof path, "%s/regions.conf", own_folder());
	file = fopen(path, "w");
	cr_assert(file && fputs(rules, file) >= 0 && fclose(file) == 0);
	d = gpuwmd_start("--config", path, "--set", "socket.mode=0666", "--set", "access.publish_group=", NULL);
	return d;
}

#define RULES_TEST(name) GPUWMD_TEST_IF(regions_rules, name, NEEDS_ROOT(), with_rules(), gpuwmd_stop_empty)

static void tries(uid_t uid, const char *region, const char *how, char answer)
{
	struct process p = region_user_begin_as(uid, region, how);

	cr_assert_eq(process_hear(&p), answer, "uid %u on %s (%s)", (unsigned)uid, region, how);
	process_kill(&p, SIGKILL);
}

RULES_TEST(a_section_says_who_opens_what_for_what)
{
	struct process alice = region_user_begin_as(ALICE, "shared/kv", "m");

	process_expect(&alice, 'a');
	tries(BOB, "shared/kv", "r", 'a');
	tries(BOB, "shared/kv", "w", 'p');
	tries(ALICE, "shared/kv", "w", 'a');
	tries(CAROL, "shared/kv", "r", 'n');
	tries(0, "shared/kv", "r", 'n');
	tries(BOB, "shared/other", "m", 'p');
	tries(CAROL, "other", "m", 'p');
	tries(BOB, "shared/kv", "o", 'p');
	process_kill(&alice, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

RULES_TEST(without_a_section_it_is_its_users_alone)
{
	struct process root = region_user_start("mine", "u");
	int admin;

	tries(ALICE, "mine", "r", 'n');
	tries(0, "mine", "w", 'a');
	process_kill(&root, SIGKILL);
	tries(0, "mine", "o", 'a');
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "mine", "ready", 0)));
	admin = raw_client(d->admin_socket);
	cr_assert_eq(RAW_ASK(admin, "region_remove", TEXT("region", "mine")), 0);
	close(admin);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

/* It is the operators', so that a worker does not see it. */
GPUWMD_TEST_IF(regions_rules, a_name_that_is_taken_does_not_say_whose_it_is, NEEDS_ROOT(), gpuwmd_start(NULL),
	       gpuwmd_stop_empty)
{
	int sock = raw_client(d->socket), admin = raw_client(d->admin_socket);
	struct raw_region secret, own, none;

	region_make(&secret, admin, "secret", "process");
	region_make(&own, sock, "own", "process");
	cr_assert_eq(REGION_CREATE(&none, sock, TEXT("name", "secret"), TEXT("device", "host"),
				   NUMBER("bytes", 1), NUMBER("chunks", 1)),
		     -EEXIST);
	cr_assert(strstr(raw_refusal(), "is taken") && !strstr(raw_refusal(), "uid"), "%s", raw_refusal());
	cr_assert_eq(REGION_CREATE(&none, sock, TEXT("name", "own"), TEXT("device", "host"), NUMBER("bytes", 1),
				   NUMBER("chunks", 1)),
		     -EEXIST);
	cr_assert(strstr(raw_refusal(), "of uid 0"), "%s", raw_refusal());
	cr_assert_eq(region_close(sock, &own), 0);
	cr_assert_eq(region_close(admin, &secret), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
	close(admin);
}

/* argv: uid, words. Subscribes, says 'a', and on a word how many events so far have the words: they come before an answer. */
static int listener(int argc, char **argv)
{
	static struct raw_reply reply;
	uid_t uid = (uid_t)strtoul(argv[0], NULL, 10);
	char count = '0';
	int sock;

	CHILD_ASSERT(argc == 2 && setgroups(0, NULL) == 0 && setgid(uid) == 0 && setuid(uid) == 0);
	sock = raw_client(getenv("GPUWM_SOCKET"));
	CHILD_ASSERT(raw_call(sock, "subscribe") == 0);
	child_say('a');
	child_hear();
	raw_send_with(sock, 3, "ping", NULL);
	while (raw_receive(sock, &reply) && reply.message.type == MESSAGE_NOTIFICATION) {
		count += memmem(reply.data, reply.packet.bytes, argv[1], strlen(argv[1])) != NULL;
		raw_reply_clear(&reply);
	}
	raw_reply_clear(&reply);
	child_say(count);
	return 0;
}

static struct process listener_start(const char *uid)
{
	struct process p = process_start(listener, uid, "shared/kv", NULL);

	process_expect(&p, 'a');
	return p;
}

RULES_TEST(events_are_for_those_who_see_the_region)
{
	struct process bob = listener_start("61002"), carol = listener_start("61003"), alice;

	alice = region_user_begin_as(ALICE, "shared/kv", "m");
	process_expect(&alice, 'a');
	process_kill(&alice, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	process_tell(&bob, 'q');
	process_expect(&bob, '3'); /* made, user lost, ended */
	process_tell(&carol, 'q');
	process_expect(&carol, '0');
	process_finish(&bob);
	process_finish(&carol);
}

/* ---- quotas ----------------------------------------------------------- */

static void is_refused(const char *words, const char *method, const struct param *params, int sock)
{
	struct raw_region region;

	cr_assert_eq(region_ask(&region, sock, method, params), -EDQUOT, "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), words), "%s", raw_refusal());
}

static void second_is_refused(const char *set, const char *words)
{
	struct gpuwmd *d = gpuwmd_start("--set", set, NULL);
	int sock = raw_client(d->socket);
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	is_refused(words, "region_create",
		   PARAMS(TEXT("device", "host"), NUMBER("bytes", MB(1)), NUMBER("chunks", 1)), sock);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	region_make(&made, sock, "kv", "process");
	cr_assert_eq(region_close(sock, &made), 0);
	close(sock);
	gpuwmd_stop_empty(d);
}

Test(regions_rules, a_user_has_so_many_regions)
{
	second_is_refused("limits.regions_per_uid=1", "regions_per_uid");
}

Test(regions_rules, a_user_has_so_many_bytes)
{
	second_is_refused("limits.bytes_per_uid=1M", "bytes_per_uid");
}

Test(regions_rules, a_user_has_so_many_descriptors)
{
	second_is_refused("limits.fds_per_uid=5", "fds_per_uid");
}

GPUWMD_TEST_BY(regions_rules, whoever_opens_pays_for_the_pidfd,
	       gpuwmd_start("--set", "limits.fds_per_uid=3", NULL), gpuwmd_stop_empty)
{
	int sock = raw_client(d->socket);
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	is_refused("fds_per_uid", "region_open", PARAMS(TEXT("region", "kv")), sock);
	cr_assert(region_is(d, "kv", "ready", 1));
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

GPUWMD_TEST_BY(regions_rules, a_full_store_is_an_error,
	       gpuwmd_start_kept(&(const struct kept){.store_max = "6"}), gpuwmd_stop_empty)
{
	int sock = raw_client(d->admin_socket); /* a user gets half of them only */
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	is_refused("3 of the 3", "region_open", PARAMS(TEXT("region", "kv")), sock);
	is_refused("--store-max", "region_create",
		   PARAMS(TEXT("device", "host"), NUMBER("bytes", MB(1)), NUMBER("chunks", 1)), sock);
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	region_make(&made, sock, "kv", "process");
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* Closing takes a while, in which the memory is still charged. */
GPUWMD_TEST_BY(regions_rules, a_region_waits_for_memory_that_is_being_freed,
	       gpuwmd_start("--set", "budget.host=96M", NULL), gpuwmd_stop_empty)
{
	const struct param *sixty_four = PARAMS(TEXT("name", "kv"), TEXT("device", "host"),
						NUMBER("bytes", MB(64)), NUMBER("chunks", 1));
	int sock = raw_client(d->admin_socket); /* nobody shares with operators */
	struct raw_region made, other;

	for (int i = 0; i < 10; i++) {
		cr_assert_eq(region_ask(&made, sock, "region_create", sixty_four), 0, "%s", raw_refusal());
		cr_assert_eq(posix_fallocate(made.memory_fd, 0, MB(64)), 0);
		cr_assert_eq(REGION_CREATE(&other, sock, TEXT("device", "host"), NUMBER("bytes", MB(64)),
					   NUMBER("chunks", 1)),
			     -ENOSPC);
		cr_assert_null(strstr(raw_refusal(), "being freed"), "%s", raw_refusal());
		cr_assert_eq(region_close(sock, &made), 0);
	}
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* They wrapped around to a few bytes when there was something to wait for. */
GPUWMD_TEST(regions_rules, no_number_of_bytes_is_too_large_to_be_refused)
{
	int sock = raw_client(d->socket);
	struct raw_region made, other;

	for (int i = 0; i < 20; i++) {
		region_make(&made, sock, "kv", "process");
		cr_assert_eq(region_close(sock, &made), 0);
		cr_assert_eq(REGION_CREATE(&other, sock, TEXT("device", "host"), NUMBER("bytes", UINT64_MAX),
					   NUMBER("chunks", 1)),
			     -ENOSPC, "%s", raw_refusal());
		cr_assert(strstr(raw_refusal(), "no device has"), "%s", raw_refusal());
		cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	}
	close(sock);
}

/* ---- hostile users ---------------------------------------------------- */

GPUWMD_TEST(regions_rules, a_scribbled_control_memory_ends_its_region_alone)
{
	struct process hostile = region_user_start("kv", "m");
	struct raw_region opened, other, again;
	int sock = raw_client(d->socket);

	region_make(&other, sock, "other", "process");
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	region_user_does(&hostile, 'd');
	cr_assert_eq(REGION_OPEN(&again, sock, TEXT("region", "kv")), -ESHUTDOWN);
	cr_assert(strstr(raw_refusal(), "damaged"), "%s", raw_refusal());
	cr_assert_eq(atomic_load(&opened.control.head->ended), CONTROL_DAMAGED);
	cr_assert(region_is(d, "kv", "ended", 2) && region_is(d, "other", "ready", 1));
	process_kill(&hostile, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(region_close(sock, &other), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* Whatever is there, gpuwmd answers. */
GPUWMD_TEST(regions_rules, any_bytes_do_gpuwmd_no_harm)
{
	struct raw_region made, opened;
	int sock = raw_client(d->socket);

	for (unsigned seed = 1; seed <= 40; seed++) {
		uint8_t *bytes;
		int code;

		region_make(&made, sock, "kv", "process");
		bytes = (uint8_t *)made.control.head;
		srand(seed);
		for (uint64_t i = seed % 2 ? 0 : CONTROL_HEAD_BYTES;
		     i < control_bytes((struct control_shape){.chunks = 16}); i++)
			bytes[i] = (uint8_t)rand();
		code = seed % 3 ? REGION_OPEN(&opened, sock, TEXT("region", "kv")) : -ESHUTDOWN;
		cr_assert(code == 0 || code == -ESHUTDOWN, "%d: %s (seed %u)", code, raw_refusal(), seed);
		if (code == 0)
			cr_assert_eq(region_close(sock, &opened), 0);
		json_decref(query(d->admin, "region_list", made.text));
		json_decref(region_entry(d, made.text));
		cr_assert_eq(region_close(sock, &made), 0);
		cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	}
	close(sock);
}

GPUWMD_TEST(regions_rules, a_strangers_use_is_not_given_back)
{
	static const uint8_t secret[16] = {1};
	int sock = raw_client(d->socket), admin = raw_client(d->admin_socket);
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	cr_assert_eq(RAW_ASK(sock, "region_close", ID("use", secret)), 0);
	cr_assert_eq(RAW_ASK(sock, "region_close", ID("use", made.id)), 0);
	cr_assert(region_is(d, "kv", "ready", 1));
	cr_assert_eq(RAW_ASK(admin, "region_remove", TEXT("region", "kv")), 0);
	cr_assert(region_is(d, "kv", "ended", 1));
	cr_assert_eq(region_close(sock, &made), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
	close(admin);
}

/* ---- gpuwmd lets everything go ---------------------------------------- */

GPUWMD_TEST(regions_rules, a_drain_ends_regions)
{
	struct process owner = region_user_start("kv", "m");
	struct raw_region opened;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert_eq(status_of(d, "regions"), 1);
	cr_assert_eq(status_of(d, "region_users"), 2);
	cr_assert_eq(status_of(d, "region_bytes"), MB(1));
	json_decref(query(d->admin, "drain", NULL));
	cr_assert_eq(atomic_load(&opened.control.head->ended), CONTROL_REMOVED);
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), -ESHUTDOWN);
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

/* ---- the loader ------------------------------------------------------- */

GPUWMD_TEST(regions_rules, a_loader_that_dies_makes_no_region)
{
	int sock = raw_client(d->socket), other;
	struct raw_region made;

	loaders_kill(d, SIGSTOP);
	RAW_SEND(sock, 7, "region_create", TEXT("name", "kv"), TEXT("device", "host"), NUMBER("bytes", MB(1)),
		 NUMBER("chunks", 1));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));
	other = raw_client(d->socket);
	cr_assert_eq(REGION_CREATE(&made, other, TEXT("name", "kv"), TEXT("device", "host"),
				   NUMBER("bytes", MB(1)), NUMBER("chunks", 1)),
		     -EEXIST);
	close(other);
	/* Who asked for it leaves: nobody is to have it. */
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1 && region_is(d, "kv", "ended", 0)));
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
}

GPUWMD_TEST_BY(regions_rules, a_loader_that_hangs_is_named,
	       gpuwmd_start("--set", "limits.check_stall_ms=500", NULL), gpuwmd_stop_empty)
{
	int sock = raw_client(d->socket);
	struct raw_region made;

	loaders_kill(d, SIGSTOP);
	cr_assert_eq(
		REGION_CREATE(&made, sock, TEXT("device", "host"), NUMBER("bytes", MB(1)), NUMBER("chunks", 1)),
		-ETIMEDOUT, "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), "gpuwm-loader hangs"), "%s", raw_refusal());
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
}

static bool is_refused_on(int sock, int code)
{
	static struct raw_reply reply;
	bool is;

	cr_assert(raw_receive(sock, &reply));
	is = reply.message.error.code == code;
	raw_reply_clear(&reply);
	return is;
}

GPUWMD_TEST(regions_rules, a_region_that_is_being_made_can_be_removed)
{
	int sock = raw_client(d->socket), other;
	struct raw_region made;

	loaders_kill(d, SIGSTOP);
	RAW_SEND(sock, 7, "region_create", TEXT("name", "kv"), TEXT("device", "host"), NUMBER("bytes", MB(1)),
		 NUMBER("chunks", 1));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "jobs_running") == 1));
	other = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&made, other, TEXT("region", "kv")), -EAGAIN, "%s", raw_refusal());
	cr_assert(strstr(raw_refusal(), "being made"), "%s", raw_refusal());
	cr_assert_eq(RAW_ASK(other, "region_remove", TEXT("region", "kv")), 0, "%s", raw_refusal());
	cr_assert(is_refused_on(sock, -ESHUTDOWN));
	loaders_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	close(sock);
	close(other);
}
