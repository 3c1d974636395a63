/* Regions, and gpuwmd that dies and goes on. */
#include "region_raw.h"

#include "tests/support/any/own_folder.h"

#include <gpuwm/region.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

SYSTEM_SUITE(regions_restart);

#define ACTING (&(const struct kept){.acts = true})

static void remove_region(struct gpuwmd *d, const char *region)
{
	int sock = raw_client(d->socket);

	cr_assert_eq(RAW_ASK(sock, "region_remove", TEXT("region", region)), 0, "%s", raw_refusal());
	close(sock);
}

/* After processes whose connections gpuwmd's death has ended. */
static void stop_empty(struct gpuwmd *d)
{
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwmd_stop_empty(d);
}

GPUWMD_TEST_BY(regions_restart, a_region_goes_on_with_its_users, gpuwmd_start_kept(KEPT_LONG), stop_empty)
{
	struct process owner = region_user_start("kv", "m"), reader = region_user_start("kv", "r");
	json_t *before = region_entry(d, "kv"), *after;
	struct raw_region opened;
	uint64_t used = host_used(d);
	int sock;

	kept_kill(d, SIGKILL);
	after = region_entry(d, "kv");
	cr_assert(json_equal(before, after), "%s", json_dumps(after, 0));
	cr_assert_eq(host_used(d), used);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv"), FLAG("write", true)), 0, "%s",
		     raw_refusal());
	cr_assert_eq(opened.slot, 2);
	process_kill(&reader, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ready", 2)));
	cr_assert(!atomic_load(&opened.control.head->users[1].here));
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, atomic_load(&opened.control.head->ended) == CONTROL_OWNER_DIED));
	cr_assert_eq(region_close(sock, &opened), 0);
	close(sock);
	json_decref(before);
	json_decref(after);
}

/* Not its connection says that a process has exited, nor that it does not come back. */
GPUWMD_TEST_BY(regions_restart, who_does_not_come_back_is_not_dead,
	       gpuwmd_start_kept(&(const struct kept){.limits = LIMITS_SHORT}), stop_empty)
{
	struct process owner = region_user_start("kv", "m"), reader = region_user_start("kv", "r");

	load_small(d, 1); /* without a version there is no grace time */
	region_user_does(&owner, 's');
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, "the grace time is over")));
	cr_assert(region_is(d, "kv", "ready", 2));
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	process_kill(&reader, SIGKILL);
	DROP(d, "m@v1");
}

/* While gpuwmd stands still it learns nothing; the next one finds an exited process behind the pidfd. */
GPUWMD_TEST_BY(regions_restart, who_dies_while_gpuwmd_is_away_is_found, gpuwmd_start_kept(KEPT_LONG),
	       stop_empty)
{
	struct process maker = region_user_start("kv", "u"), other = region_user_start("mine", "m");
	struct raw_region opened, next;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	region_user_does(&maker, 'h');
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	process_kill(&maker, SIGKILL);
	process_kill(&other, SIGKILL);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1));
	cr_assert(region_is(d, "kv", "ready", 1));
	cr_assert_eq(atomic_load(&opened.control.chunks[0].lost), 5);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&next, sock, TEXT("region", "kv"), FLAG("own", true)), 0, "%s", raw_refusal());
	cr_assert_eq(region_close(sock, &next), 0);
	cr_assert_eq(region_close(sock, &opened), 0);
	close(sock);
	remove_region(d, "kv");
}

GPUWMD_TEST_BY(regions_restart, a_stop_keeps_regions_too, gpuwmd_start_kept(KEPT_LONG), stop_empty)
{
	struct process owner = region_user_start("kv", "m");

	kept_kill(d, SIGTERM);
	cr_assert(region_is(d, "kv", "ready", 1));
	process_kill(&owner, SIGKILL);
}

/* ---- regions that have ended ------------------------------------------- */

/* Its user still maps it. */
GPUWMD_TEST_BY(regions_restart, an_ended_region_stays_charged_until_its_users_go, gpuwmd_start_kept(KEPT_LONG),
	       stop_empty)
{
	struct process owner = region_user_start("kv", "m");
	json_t *before, *after;
	struct raw_region opened, none;
	int sock = raw_client(d->socket);
	uint64_t used;

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv")), 0, "%s", raw_refusal());
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	before = region_entry(d, "kv");
	used = host_used(d);
	for (int i = 0; i < 2; i++) {
		kept_kill(d, SIGKILL);
		after = region_entry(d, "kv");
		cr_assert(json_equal(before, after), "%s", json_dumps(after, 0));
		json_decref(after);
		cr_assert(host_used(d) == used && used >= MB(1));
	}
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(REGION_OPEN(&none, sock, TEXT("region", "kv")), -EOWNERDEAD);
	cr_assert(strstr(raw_refusal(), "exited"), "%s", raw_refusal());
	cr_assert_eq(region_close(sock, &opened), 0);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0 && host_used(d) == used - MB(1)));
	kept_kill(d, SIGKILL);
	cr_assert(regions_count(d) == 0 && host_used(d) == used - MB(1));
	json_decref(before);
	close(sock);
}

/* Its user dies while no gpuwmd looks. */
GPUWMD_TEST_BY(regions_restart, the_last_user_of_an_ended_region_is_found_dead, gpuwmd_start_kept(KEPT_LONG),
	       stop_empty)
{
	struct process owner = region_user_start("kv", "m"), reader = region_user_start("kv", "r");

	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	cr_assert_eq(kill(d->pid, SIGSTOP), 0);
	process_kill(&reader, SIGKILL);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0 && host_used(d) == 0));
}

/* ---- what the control memory says of it --------------------------------- */

/* Any user may write there. */
GPUWMD_TEST_BY(regions_restart, the_control_memory_drops_nobody, gpuwmd_start_kept(KEPT_LONG), stop_empty)
{
	struct process owner = region_user_start("kv", "m");
	struct control_head *head;
	struct control_chunk *chunk;
	struct raw_region opened;
	int sock = raw_client(d->socket);

	cr_assert_eq(REGION_OPEN(&opened, sock, TEXT("region", "kv"), FLAG("write", true)), 0, "%s",
		     raw_refusal());
	head = opened.control.head;
	chunk = &opened.control.chunks[0];
	atomic_store(&chunk->word, chunk_word_offered(chunk_word_filling(1, 0), 0, 1 << 1 | 1 << 5, 0));
	atomic_store(&chunk->generation, 1);
	atomic_store(&chunk->written, 1);
	atomic_store(&head->users[0].here, 0);
	atomic_store(&head->users[1].here, 0);
	atomic_store(&head->users[5].here, 1);
	atomic_store(&head->ended, CONTROL_OWNER_CLOSED);
	kept_kill(d, SIGKILL);
	cr_assert(region_is(d, "kv", "ready", 2));
	cr_assert_eq(atomic_load(&head->ended), CONTROL_OPEN);
	cr_assert(atomic_load(&head->users[0].here) && atomic_load(&head->users[1].here));
	cr_assert_eq(chunk_word_state(atomic_load(&chunk->word), 1), CHUNK_WAITING);
	cr_assert(!atomic_load(&head->users[5].here), "the state has no such user");
	cr_assert_eq(chunk_word_state(atomic_load(&chunk->word), 5), CHUNK_NONE);
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, region_is(d, "kv", "ended", 1)));
	atomic_store(&head->ended, CONTROL_OPEN);
	kept_kill(d, SIGKILL);
	cr_assert(region_is(d, "kv", "ended", 1));
	cr_assert_eq(atomic_load(&head->ended), CONTROL_OWNER_DIED);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(region_close(sock, &opened), 0);
	close(sock);
}

/* ---- what is lost on the way -------------------------------------------- */

GPUWMD_TEST_BY(regions_restart, a_create_is_asked_again_of_the_next_gpuwmd, gpuwmd_start_kept(KEPT_LONG),
	       stop_empty)
{
	const uint8_t use[16] = {9};
	const struct param *params = PARAMS(TEXT("device", "host"), TEXT("writers", "many"),
					    NUMBER("bytes", MB(1)), NUMBER("chunks", 4), ID("use", use));
	struct raw_region made, again;
	int sock = raw_client(d->socket);

	cr_assert_eq(region_ask(&made, sock, "region_create", params), 0, "%s", raw_refusal());
	kept_kill(d, SIGKILL);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(region_ask(&again, sock, "region_create", params), 0, "%s", raw_refusal());
	cr_assert(strcmp(made.text, again.text) == 0 && made.slot == again.slot);
	cr_assert(region_is(d, made.text, "ready", 1) && regions_count(d) == 1);
	region_forget(&made);
	cr_assert_eq(region_close(sock, &again), 0);
	close(sock);
}

/* Says 'a', then makes a region by the library, and says whether that went well: 'y' or 'n'. */
static int maker(int argc, char **argv)
{
	struct gpuwm_region_options options = {.size = sizeof options, .name = argv[0], .bytes = MB(1)};
	struct gpuwm_region *region;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1 && gpuwm_connect(NULL, &client) == 0);
	child_say('a');
	child_say(gpuwm_region_create(client, &options, &region) == 0 ? 'y' : 'n');
	child_hear();
	return 0;
}

/* The library asks the next gpuwmd, which knows nothing of a region that was not made yet. */
GPUWMD_TEST_BY(regions_restart, a_region_is_made_although_gpuwmd_dies, gpuwmd_start_kept(KEPT_LONG), stop_empty)
{
	struct process p;

	loaders_kill(d, SIGSTOP);
	p = process_start(maker, "kv", NULL);
	process_expect(&p, 'a');
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 1));
	kept_kill(d, SIGKILL);
	process_expect(&p, 'y');
	cr_assert(region_is(d, "kv", "ready", 1) && regions_count(d) == 1);
	process_kill(&p, SIGKILL);
}

/* The kernel is short of something, for longer than gpuwmd tries. */
static void is_kept_while_it_lacks(const char *what)
{
	char path[64];
	struct process owner;
	struct gpuwmd *d;
	FILE *file;

	SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library");
	snprintf(path, sizeof path, "%s/no-region", own_folder());
	setenv("NO_REGION", path, 1);
	d = gpuwmd_start_kept(&(const struct kept){.preload = "no-region", .limits = LIMITS_LONG});
	owner = region_user_start("kv", "m");
	file = fopen(path, "w");
	cr_assert(file && fputs(what, file) >= 0 && fclose(file) == 0);
	cr_assert_eq(kill(d->pid, SIGKILL), 0);
	cr_assert(EVENTUALLY(SOON_MS, log_count(d, "gpuwmd can't go on with the region kv: ") > 0));
	unlink(path);
	kept_wait(d);
	cr_assert(region_is(d, "kv", "ready", 1));
	process_kill(&owner, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	gpuwmd_stop_empty(d);
}

Test(regions_restart, a_control_memory_that_can_not_be_mapped_is_kept)
{
	is_kept_while_it_lacks("map");
}

Test(regions_restart, a_user_that_can_not_be_watched_is_kept)
{
	is_kept_while_it_lacks("watch");
}

/* ---- what is not there any more --------------------------------------- */

/* told: its users learn of it. */
static void is_lost_without(const char *act, bool told)
{
	struct gpuwmd *d = gpuwmd_start_kept(ACTING);
	int sock = raw_client(d->socket);
	uint64_t used;
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	used = host_used(d);
	kept_act(d, act);
	kept_kill(d, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, regions_count(d) == 0));
	cr_assert_eq(log_count(d, "the region kv was lost: the fd store gave back 2 of its 3 descriptors"), 1);
	cr_assert_lt(host_used(d), used);
	cr_assert_eq(atomic_load(&made.control.head->ended), told ? CONTROL_REMOVED : CONTROL_OPEN);
	region_forget(&made);
	close(sock);
	gpuwmd_stop_empty(d);
}

Test(regions_restart, a_region_without_its_memory_is_lost)
{
	is_lost_without("drop g1\n", true);
}

Test(regions_restart, a_region_without_its_control_memory_is_lost)
{
	is_lost_without("drop g2\n", false);
}

Test(regions_restart, a_region_without_a_pidfd_is_lost)
{
	is_lost_without("drop g3\n", true);
}

Test(regions_restart, a_region_with_another_control_memory_is_lost)
{
	is_lost_without("drop g2\nshort g2\n", false);
}

/* Nobody keeps it: who uses it learns that it has ended. */
Test(regions_restart, without_a_store_regions_end_with_gpuwmd)
{
	struct gpuwmd *d = gpuwmd_start(NULL);
	int sock = raw_client(d->socket);
	struct raw_region made;

	region_make(&made, sock, "kv", "process");
	close(sock);
	d->admin = gpuwm_close(d->admin);
	cr_assert_eq(kill(d->pid, SIGTERM), 0);
	cr_assert(EVENTUALLY(SOON_MS, atomic_load(&made.control.head->ended) == CONTROL_REMOVED));
	region_forget(&made);
}

/* ---- killed at any moment --------------------------------------------- */

/* Removes the region when it has no user. The next gpuwmd may still find the request of a process that was killed. */
static bool is_cleared(struct gpuwmd *d)
{
	if (region_is(d, "kv", "ready", 0))
		remove_region(d, "kv");
	return regions_count(d) == 0;
}

/* What was made, opened or closed just then is there or not, and whoever has died is gone in any case. */
GPUWMD_TEST_BY(regions_restart, a_kill_at_any_moment_leaves_nothing_behind, gpuwmd_start_kept(KEPT_LONG),
	       stop_empty)
{
	const unsigned kills = kills_wanted(8);

	for (unsigned i = 0; i < kills; i++) {
		struct process one = region_user_begin("kv", "u"), other;

		usleep(1000 * (i * 7 % 40));
		if (i % 2)
			process_hear(&one);
		other = region_user_begin("kv", "w");
		usleep(500 * (i % 7));
		if (i % 3 == 0)
			cr_assert_eq(kill(other.pid, SIGKILL), 0);
		kept_kill(d, SIGKILL);
		process_kill(&other, SIGKILL);
		process_kill(&one, SIGKILL);
		cr_assert(EVENTUALLY(SOON_MS, is_cleared(d)));
	}
	cr_assert_eq(log_count(d, "was lost"), 0);
}
