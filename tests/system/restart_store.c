/* What the next gpuwmd is given is not what the last one stored: too little, too much, damaged. */
#include "kept.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

SYSTEM_SUITE(restart_store);

#define SLACK_MS SOON_MS
#define ACTING (&(const struct kept){.acts = true})

/* m@v1 (current) is what g1 and g2 are, its index and its segment; m@v2 is g3 and g4. */
static struct gpuwmd *scene(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_start_kept(how);

	load_small(d, 2);
	return d;
}

static void kill_after(struct gpuwmd *d, const char *acts)
{
	kept_act(d, acts);
	kept_kill(d, SIGKILL);
}

static void all_is_well(struct gpuwmd *d)
{
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m", 1);
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
}

/* ---- a full store ----------------------------------------------------- */

GPUWMD_TEST_BY(restart_store, a_full_store_is_an_error_that_names_the_limit,
	       scene(&(struct kept){.store_max = "7"}), gpuwmd_stop_empty)
{
	/* The state, two sockets, two versions of two descriptors. */
	const char *path = checkpoint_write(d, "v3", SMALL(3));
	uint64_t memory = kept_memory(d);

	for (int i = 0; i < 2; i++) {
		FAILS(EDQUOT, load_try(d, path, "m@v3"));
		cr_assert(strstr(gpuwm_error()->message, "of 4, operators hold 4"), "%s",
			  gpuwm_error()->message);
		cr_assert(strstr(gpuwm_error()->detail, "--store-max"), "%s", gpuwm_error()->detail);
		cr_assert_not(version_is(d, "m", "v3", "failed"), "it was refused before there was anything");
		cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
		kept_kill(d, SIGKILL);
	}
	cr_assert_eq(status_of(d, "adopted"), 2);
	worker_reads(d, "m@v2", 2);
	DROP(d, "m@v2");
	load_version(d, path, "m@v3");
	kept_kill(d, SIGKILL);
	worker_reads(d, "m@v1", 1);
	worker_reads(d, "m@v3", 3);
	cr_assert_eq(log_count(d, "the store is full"), 0);
	DROP(d, "m@v1", "m@v3");
}

/* ---- more than was stored --------------------------------------------- */

GPUWMD_TEST_BY(restart_store, a_descriptor_that_is_not_ours_is_removed_and_closed, scene(ACTING), all_is_well)
{
	uint64_t memory = kept_memory(d);
	size_t kept = fds_of(d->keeper);

	kill_after(d, "foreign stranger\n");
	cr_assert_eq(log_count(d, "belong to no version"), 1);
	cr_assert(EVENTUALLY(SLACK_MS, fds_of(d->keeper) == kept));
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
	kept_kill(d, SIGKILL);
	cr_assert_eq(log_count(d, "belong to no version"), 1);
}

/* As a publish leaves one that a kill ended between the store and the state. */
GPUWMD_TEST_BY(restart_store, a_name_that_was_left_over_is_not_used_again, scene(ACTING), all_is_well)
{
	uint64_t memory = kept_memory(d);

	kill_after(d, "foreign g7f\n");
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	/* Its index is g80, then: not g5, and not g7f again. */
	kill_after(d, "drop g81\n");
	cr_assert(version_is(d, "m", "v3", "failed"), "the segment of m@v3 has another name than g81");
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == memory));
}

GPUWMD_TEST_BY(restart_store, of_two_with_one_name_neither_is_served, scene(ACTING), gpuwmd_stop_empty)
{
	kill_after(d, "foreign g4\n");
	cr_assert(version_is(d, "m", "v1", "ready") && version_is(d, "m", "v2", "failed"));
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
}

/* By its name ours would leave the store with it. */
GPUWMD_TEST_BY(restart_store, a_second_state_is_left_there, scene(ACTING), all_is_well)
{
	kill_after(d, "foreign gpuwm-state\n");
	cr_assert(version_is(d, "m", "v1", "ready"));
	kept_kill(d, SIGKILL);
	d->keeper_fds++; /* the strange one */
}

/* ---- less than was stored --------------------------------------------- */

static void one_is_lost(const char *acts, const char *missing)
{
	struct gpuwmd *d = scene(ACTING);
	int sock = raw_client(d->socket);
	uint64_t both = kept_memory(d);
	struct raw_lease lease;
	json_t *entry, *error;

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	close(sock);
	kill_after(d, acts);
	cr_assert(status_of(d, "lost") == 1 && status_of(d, "adopted") == 1);
	entry = version_entry(d, "m", "v1");
	error = json_object_get(entry, "error");
	cr_assert_str_eq(json_string_value(json_object_get(entry, "state")), "failed");
	cr_assert_str_eq(json_string_value(json_object_get(error, "code")), "ESTALE");
	cr_assert(strstr(json_string_value(json_object_get(error, "message")), missing), "%s",
		  json_string_value(json_object_get(error, "message")));
	json_decref(entry);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_lease(sock, "m@v1", &lease), -ESTALE);
	cr_assert_eq(raw_resume_one(d, sock, &lease), -ESTALE);
	cr_assert_eq(raw_lease(sock, "m", &lease), -ENOENT, "its aliases go with it");
	close(sock);
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) < both));
	worker_reads(d, "m@v2", 2);
	/* The tag is free again, and the next start does not know the lost one. */
	load_small(d, 1);
	OK(swap_to(d, "m", "v1", false));
	kept_kill(d, SIGKILL);
	cr_assert_eq(status_of(d, "lost"), 0);
	all_is_well(d);
}

Test(restart_store, a_version_without_its_segment_is_lost_and_others_are_not)
{
	one_is_lost("drop g2\n", "segment 0");
}

Test(restart_store, a_version_without_its_index_is_lost_and_others_are_not)
{
	one_is_lost("drop g1\n", "the index");
}

Test(restart_store, a_version_without_anything_is_lost_and_others_are_not)
{
	one_is_lost("drop g1\ndrop g2\n", "0 of its 2 descriptors");
}

/* Names are not believed: `foreign` stores a memfd that has no seals, as anybody's may be. */
Test(restart_store, a_version_with_another_segment_is_lost_and_others_are_not)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "the memory of a GPU can't be told");
	one_is_lost("drop g2\nforeign g2\n", "segment 0 of rank 0 on host is not what was stored");
}

Test(restart_store, a_version_with_another_index_is_lost_and_others_are_not)
{
	one_is_lost("drop g1\nforeign g1\n", " is not what was stored");
}

Test(restart_store, a_version_with_too_short_a_segment_is_lost_and_others_are_not)
{
	SKIP_UNLESS(backend() == BACKEND_HOST, "the memory of a GPU can't be told");
	one_is_lost("drop g2\nshort g2\n", "segment 0 of rank 0 on host is not what was stored");
}

/* ---- the state -------------------------------------------------------- */

static size_t pins_of(struct gpuwmd *d, const char *tag)
{
	json_t *entry = version_entry(d, "m", tag);
	size_t pins = json_array_size(json_object_get(entry, "pins"));

	json_decref(entry);
	return pins;
}

GPUWMD_TEST_BY(restart_store, a_torn_slot_leaves_the_state_before_it, scene(ACTING), all_is_well)
{
	OK(gpuwm_pin(d->admin, "m@v1", "first"));
	OK(gpuwm_pin(d->admin, "m@v1", "second"));
	kill_after(d, "tear\n");
	cr_assert_eq(pins_of(d, "v1"), 1);
	OK(gpuwm_unpin(d->admin, "m@v1", "first"));
	kept_kill(d, SIGKILL);
	cr_assert_eq(pins_of(d, "v1"), 0);
}

/* Only who asks how it is, or to let go, is answered; nothing is touched. */
static void is_locked(struct gpuwmd *d, size_t kept, const char *why)
{
	static const char *const refused[] = {"list",          "get_handles",   "release",     "resume",
					      "subscribe",     "hot_swap",      "pin_version", "unpin_version",
					      "retire",        "load",          "jobs",        "clients",
					      "publish_begin", "publish_commit"};
	int sock = raw_client(d->admin_socket);
	json_t *status = query(d->admin, "status", NULL), *locked = json_object_get(status, "locked");

	for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
		cr_assert_eq(raw_call(sock, refused[i]), -EUCLEAN, "%s", refused[i]);
	cr_assert_eq(raw_call(sock, "ping"), 0);
	cr_assert_str_eq(json_string_value(json_object_get(locked, "code")), "EUCLEAN");
	cr_assert(strstr(
		json_string_value(json_object_get(locked, "message")),
		"gpuwmd is locked: it can't read the stored state, and leaves all descriptors in the store: "));
	cr_assert(strstr(json_string_value(json_object_get(locked, "message")), why), "%s",
		  json_string_value(json_object_get(locked, "message")));
	cr_assert_eq(fds_of(d->keeper), kept, "the store was touched");
	json_decref(status);
	close(sock);
}

/* A kill more changes nothing; after a drain it begins empty. */
static void locks(const char *acts, const char *why)
{
	struct gpuwmd *d = scene(ACTING);
	size_t kept = fds_of(d->keeper), dropped = strncmp(acts, "drop", 4) == 0;
	json_t *before = query(d->admin, "status", NULL), *after;
	uint64_t memory = kept_memory(d);

	kill_after(d, acts);
	is_locked(d, kept - dropped, why);
	cr_assert_eq(kept_memory(d), memory);
	kept_kill(d, SIGKILL);
	is_locked(d, kept - dropped, why);
	OK(gpuwm_drain(d->admin));
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == 0));
	kept_kill(d, SIGTERM);
	after = query(d->admin, "status", NULL);
	cr_assert(!json_object_get(after, "locked"));
	cr_assert_eq(status_of(d, "versions"), 0);
	cr_assert_eq(status_of(d, "epoch"), 1);
	cr_assert(!json_equal(json_object_get(before, "ledger"), json_object_get(after, "ledger")));
	json_decref(before);
	json_decref(after);
	load_small(d, 1);
	kept_kill(d, SIGKILL);
	worker_reads(d, "m", 1);
	DROP(d, "m@v1");
	gpuwmd_stop_empty(d);
}

Test(restart_store, a_state_without_a_valid_slot_is_left_alone)
{
	locks("tear-all\n", "neither slot of the state is valid");
}

Test(restart_store, a_state_of_a_newer_format_is_left_alone)
{
	locks("format 4711\n", "4711");
}

Test(restart_store, weights_without_a_state_are_left_alone)
{
	locks("drop gpuwm-state\n", "4 descriptors of versions, but no state");
}

GPUWMD_TEST_BY(restart_store, a_memfd_in_the_states_place_is_left_alone, scene(ACTING), gpuwmd_stop_empty)
{
	size_t kept = fds_of(d->keeper);

	kill_after(d, "drop gpuwm-state\nforeign gpuwm-state\n");
	is_locked(d, kept, "no memfd of two slots");
	OK(gpuwm_drain(d->admin));
	kept_kill(d, SIGKILL);
	cr_assert_eq(status_of(d, "versions"), 0);
}

GPUWMD_TEST_BY(restart_store, the_program_that_can_read_the_state_goes_on_with_it, scene(ACTING), all_is_well)
{
	char *before = kept_registry(d), *after;

	kill_after(d, "format 4711\n");
	is_locked(d, fds_of(d->keeper), "4711");
	kill_after(d, "format 1\n");
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	free(before);
	free(after);
}

/* ---- what is no memory -------------------------------------------------- */

static void other_is_not_believed(const char *kind)
{
	char acts[64];

	snprintf(acts, sizeof acts, "drop g1\nother g1=%s\n", kind);
	one_is_lost(acts, " is not what was stored");
	if (backend() != BACKEND_HOST) /* the memory of a GPU can't be told */
		return;
	snprintf(acts, sizeof acts, "drop g2\nother g2=%s\n", kind);
	one_is_lost(acts, "segment 0 of rank 0 on host is not what was stored");
}

static void other_is_no_state(const char *kind)
{
	struct gpuwmd *d = scene(ACTING);
	size_t kept = fds_of(d->keeper);
	char acts[64];

	snprintf(acts, sizeof acts, "drop gpuwm-state\nother gpuwm-state=%s\n", kind);
	kill_after(d, acts);
	is_locked(d, kept, "no memfd of two slots");
	OK(gpuwm_drain(d->admin));
	kept_kill(d, SIGKILL);
	cr_assert_eq(status_of(d, "versions"), 0);
	gpuwmd_stop_empty(d);
}

#define OTHER_KIND_TEST(kind)                                                                                  \
	Test(restart_store, a_##kind##_is_not_believed_by_its_name)                                            \
	{                                                                                                      \
		other_is_not_believed(#kind);                                                                  \
		other_is_no_state(#kind);                                                                      \
	}
OTHER_KIND_TEST(pipe)
OTHER_KIND_TEST(socket)
OTHER_KIND_TEST(file)
OTHER_KIND_TEST(folder)
OTHER_KIND_TEST(path)
OTHER_KIND_TEST(event)
OTHER_KIND_TEST(device)

static const char *const other_kinds[] = {"pipe", "socket", "file", "folder", "path", "event", "device"};
#define OTHER_KINDS (sizeof other_kinds / sizeof other_kinds[0])

/* What has the name of a socket that gpuwmd made stays, as by that name the socket would leave the store with it. */
GPUWMD_TEST_BY(restart_store, what_is_no_socket_is_not_believed_by_its_name, scene(ACTING), all_is_well)
{
	const size_t kept = fds_of(d->keeper);
	char acts[64];

	for (size_t i = 0; i < OTHER_KINDS; i++) {
		snprintf(acts, sizeof acts, "other worker=%s\nother own-admin=%s\n", other_kinds[i],
			 other_kinds[(i + 1) % OTHER_KINDS]);
		kill_after(d, acts);
		cr_assert_eq(log_count(d, "passed as \"worker\" is no listening SOCK_SEQPACKET socket"), i + 1);
		worker_reads(d, "m@v1", 1);
		cr_assert(EVENTUALLY(SLACK_MS, fds_of(d->keeper) == kept + i + 1),
			  "%s: the keeper has %zu descriptors, not %zu", other_kinds[i], fds_of(d->keeper),
			  kept + i + 1);
	}
	d->keeper_fds += OTHER_KINDS;
}

/* ---- a record that can't be read ---------------------------------------- */

/* m@v1, and its alias. */
static void one_is_unread(struct gpuwmd *d, size_t kept)
{
	cr_assert_eq(status_of(d, "unread"), 2);
	cr_assert(version_is(d, "m", "v1", "none") && version_is(d, "m", "v2", "ready"));
	cr_assert_eq(fds_of(d->keeper), kept);
	worker_reads(d, "m@v2", 2);
}

GPUWMD_TEST_BY(restart_store, a_record_that_cannot_be_read_costs_itself, scene(ACTING), all_is_well)
{
	const size_t kept = fds_of(d->keeper);

	kill_after(d, "text ready=xeady\n");
	one_is_unread(d, kept);
	cr_assert_eq(log_count(d, "the state's versions[0] (m@v1): the state \"xeady\": it is not used"), 1);
	CTL_IS(0, "status");
	SAYS("versions taken over: 1, RECORDS NOT READ: 2");
	load_version(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3");
	kept_kill(d, SIGKILL);
	worker_reads(d, "m@v3", 3);
	DROP(d, "m@v3");
	cr_assert(EVENTUALLY(SLACK_MS, fds_of(d->keeper) == kept));
	one_is_unread(d, kept);
	/* The program that can read it. */
	kill_after(d, "text xeady=ready\n");
	cr_assert_eq(status_of(d, "unread"), 0);
}

GPUWMD_TEST_BY(restart_store, what_cannot_be_read_goes_with_a_drain, scene(ACTING), gpuwmd_stop_empty)
{
	kill_after(d, "text ready=xeady\n");
	OK(gpuwm_drain(d->admin));
	cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == 0));
	kept_kill(d, SIGTERM);
	cr_assert_eq(status_of(d, "versions"), 0);
	cr_assert_eq(status_of(d, "unread"), 0);
}

#define GARBLED 20

/* Whatever valid digests stand over: gpuwmd starts, says what it could not read, and serves, or keeps all and serves nothing. */
GPUWMD_TEST_BY(restart_store, a_state_of_any_bytes_is_no_end, scene(ACTING), gpuwmd_stop_empty)
{
	unsigned locked = 0, unread = 0;
	char acts[32];

	for (unsigned seed = 1; seed <= GARBLED; seed++) {
		json_t *status;

		snprintf(acts, sizeof acts, "garble %u\n", seed);
		kill_after(d, acts);
		status = query(d->admin, "status", NULL);
		locked += json_object_get(status, "locked") != NULL;
		unread += json_integer_value(json_object_get(status, "unread")) > 0;
		json_decref(status);
		OK(gpuwm_drain(d->admin));
		cr_assert(EVENTUALLY(SLACK_MS, kept_memory(d) == 0), "seed %u", seed);
		kept_kill(d, SIGTERM);
		cr_assert_eq(status_of(d, "versions"), 0, "seed %u", seed);
		load_small(d, 2);
	}
	cr_assert_gt(locked, 0);
	cr_assert_gt(unread, 0);
	cr_assert_eq(log_count(d, "was ended by signal"), GARBLED, "gpuwmd has crashed");
	DROP(d, "m@v1", "m@v2");
}

static int pin_by(int sock, const char *ref, const char *pin)
{
	return RAW_ASK(sock, "pin_version", TEXT("ref", ref), TEXT("pin", pin));
}

/* What can't be written was never acknowledged: gpuwmd ends, and the next one can. Each start writes once, so that
 * both slots have their turn. */
GPUWMD_TEST_BY(restart_store, a_state_that_cannot_be_written_ends_it_without_an_answer, scene(ACTING),
	       all_is_well)
{
	char *before = kept_registry(d), *after;

	for (int i = 0; i < 3; i++) {
		int sock = raw_client(d->admin_socket);

		cr_assert_eq(prlimit(d->pid, RLIMIT_FSIZE, &(struct rlimit){100, 100}, NULL), 0);
		cr_assert_eq(pin_by(sock, "m@v1", "night"), -ECONNRESET);
		close(sock);
		kept_wait(d);
		after = kept_registry(d);
		cr_assert_str_eq(after, before);
		free(after);
	}
	cr_assert_eq(log_count(d, "ended with status 74"), 3);
	free(before);
}
