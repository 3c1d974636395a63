/* gpuwmd ends and the next one goes on: what is as before, what is not, who gets leases again. */
#include "kept.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

SYSTEM_SUITE(restart);

/* ---- the scene -------------------------------------------------------- */

static struct gpuwmd *scene(const struct kept *how)
{
	struct gpuwmd *d = gpuwmd_start_kept(how);

	load_scene(d);
	return d;
}

static void scene_end(struct gpuwmd *d)
{
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	DROP(d, "m@v1", "m@v2");
	gpuwmd_stop_empty(d);
	cr_assert_eq(log_count(d, "is not kept"), 0);
}

/* The same where m@v1 is gone. */
static void scene_end_v2(struct gpuwmd *d)
{
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	DROP(d, "m@v2");
	gpuwmd_stop_empty(d);
}

/* A retiring version without any hold but this lease. Returns the lease's connection. */
static int retire_under(struct gpuwmd *d, struct raw_lease *ret_lease)
{
	int sock = raw_client(d->socket);

	cr_assert_eq(raw_lease(sock, "m@v1", ret_lease), 0);
	OK(swap_to(d, "m", "v2", true));
	cr_assert(version_is(d, "m", "v1", "retiring"));
	return sock;
}

/* ---- everything as before --------------------------------------------- */

static void same(json_t *before, json_t *after, const char *key)
{
	cr_assert(json_equal(json_object_get(before, key), json_object_get(after, key)), "%s", key);
}

static json_int_t number(json_t *status, const char *key)
{
	return json_integer_value(json_object_get(status, key));
}

/* Of versions: a loader that has just loaded may still hold its context. */
static json_int_t used_by_versions(json_t *device)
{
	return number(device, "used") - number(device, "contexts");
}

static void check_status(json_t *before, json_t *after)
{
	static const char *const keys[] = {"ledger", "versions",    "aliases", "pins",
					   "bytes",  "index_bytes", "segments"};
	json_t *device;
	size_t i;

	for (i = 0; i < sizeof keys / sizeof *keys; i++)
		same(before, after, keys[i]);
	cr_assert(!json_equal(json_object_get(before, "instance"), json_object_get(after, "instance")));
	cr_assert_eq(number(after, "epoch"), number(before, "epoch") + 1);
	cr_assert_gt(number(after, "seq"), number(before, "seq"));
	cr_assert_eq(number(after, "adopted"), number(before, "versions"));
	cr_assert_eq(number(after, "lost"), 0);
	cr_assert(json_is_true(json_object_get(after, "kept")) && !json_object_get(after, "locked"));
	json_array_foreach(json_object_get(before, "devices"), i, device) {
		json_t *now = json_array_get(json_object_get(after, "devices"), i);

		same(device, now, "device");
		cr_assert_eq(used_by_versions(now), used_by_versions(device));
		same(device, now, "budget");
		same(device, now, "granularity");
	}
}

static void everything_is_as_before(struct gpuwmd *d, int pid, int signal_number)
{
	struct process worker = worker_start(d, "m@prod", 2);
	json_t *status_before = query(d->admin, "status", NULL), *status_after;
	char *before = kept_registry(d), *after;
	uint64_t memory = kept_memory(d);

	cr_assert(kill(pid, signal_number) == 0);
	kept_wait(d);
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	status_after = query(d->admin, "status", NULL);
	check_status(status_before, status_after);
	cr_assert_eq(kept_memory(d), memory);
	worker_reads(d, "m", 1);
	worker_reads(d, "m@prod", 2);
	process_tell(&worker, 'e');
	process_finish(&worker);
	json_decref(status_before);
	json_decref(status_after);
	free(before);
	free(after);
}

GPUWMD_TEST_BY(restart, kill_9_changes_the_instance_and_nothing_else, scene(&(struct kept){}), scene_end)
{
	everything_is_as_before(d, d->pid, SIGKILL);
	everything_is_as_before(d, d->pid, SIGKILL);
}

GPUWMD_TEST_BY(restart, a_stop_leaves_the_weights_too, scene(&(struct kept){}), scene_end)
{
	everything_is_as_before(d, d->pid, SIGTERM);
}

GPUWMD_TEST_BY(restart, an_upgrade_in_place_leaves_the_weights_too, scene(&(struct kept){}), scene_end)
{
	everything_is_as_before(d, d->keeper, SIGUSR1);
}

/* A lease brings descriptors that all share: root in a container, too, can change what is not sealed. */
static void descriptors_spoil(const struct gpuwmd *d, const char *ref)
{
	const uid_t other = geteuid() == 0 ? 61001 : geteuid();
	int sock = raw_client(d->socket);
	static struct raw_reply reply;

	RAW_SEND(sock, 2, "get_handles", TEXT("ref", ref));
	cr_assert(raw_receive(sock, &reply));
	cr_assert_eq(reply.message.error.code, 0);
	cr_assert_gt(reply.packet.fd_count, 1);
	for (size_t i = 0; i < reply.packet.fd_count; i++) {
		int fd = reply.packet.fds[i];

		cr_assert(fchmod(fd, 0) == 0 && fchown(fd, other, (gid_t)-1) == 0);
		cr_assert(fcntl(fd, F_SETFL, O_NONBLOCK | O_APPEND) == 0 && lseek(fd, 1000, SEEK_SET) == 1000);
	}
	raw_reply_clear(&reply);
	close(sock);
}

GPUWMD_TEST_BY(restart, descriptors_that_a_worker_changed_serve_and_come_back, scene(&(struct kept){}),
	       scene_end)
{
	descriptors_spoil(d, "m");
	CTL_IS(0, "verify", "m", "--wait");
	everything_is_as_before(d, d->pid, SIGKILL);
	CTL_IS(0, "verify", "m", "--wait");
}

/* No loader is needed to go on, and so no GPU. */
GPUWMD_TEST_BY(restart, it_serves_without_any_loader, scene(&(struct kept){}), scene_end)
{
	bool by_service = d->service.pid > 0;

	kept_configure(d, &(struct kept){.loader = "/nowhere/gpuwm-loader"});
	if (by_service)
		service_stop(d);
	everything_is_as_before(d, d->pid, SIGKILL);
	cr_assert_eq(status_of(d, "standby"), 0);
	kept_configure(d, &(struct kept){});
	if (by_service)
		service_start(d);
	kept_kill(d, SIGKILL);
}

GPUWMD_TEST_BY(restart, a_lease_taken_after_a_restart_outlives_the_grace_time, scene(&(struct kept){}),
	       scene_end_v2)
{
	struct process worker;

	kept_kill(d, SIGKILL);
	worker = worker_start(d, "m", 1);
	OK(swap_to(d, "m", "v2", true));
	OK(gpuwm_retire(d->admin, "m@v1", 0));
	cr_assert(EVENTUALLY(SOON_MS, log_says(d, "the grace time is over")));
	cr_assert(version_is(d, "m", "v1", "retiring"));
	process_tell(&worker, 'd');
	process_finish(&worker);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
}

/* ---- events ----------------------------------------------------------- */

struct heard {
	unsigned lost, swapped;
	uint64_t seq;
};

static void hear(const struct gpuwm_event *event, void *user_data)
{
	struct heard *heard = user_data;

	if (strcmp(event->kind, "lost") == 0) {
		heard->lost++;
		return;
	}
	cr_assert_gt(event->seq, heard->seq);
	heard->seq = event->seq;
	heard->swapped += strcmp(event->kind, "swapped") == 0;
}

GPUWMD_TEST_BY(restart, event_numbers_go_up_and_the_gap_is_told, scene(&(struct kept){}), scene_end)
{
	struct heard heard = {.seq = status_of(d, "seq")};
	struct gpuwm_events *events;

	kept_kill(d, SIGKILL);
	OK(gpuwm_events_open(d->admin, heard.seq, &events));
	OK(swap_to(d, "m", "v2", false));
	cr_assert(EVENTUALLY(SOON_MS,
			     gpuwm_events_dispatch(events, 100, hear, &heard) >= 0 && heard.swapped > 0));
	cr_assert_eq(heard.lost, 1);
	gpuwm_events_close(events);
}

/* ---- resume ----------------------------------------------------------- */

GPUWMD_TEST_BY(restart, leases_are_taken_again, scene(KEPT_LONG), scene_end)
{
	int sock = raw_client(d->socket), codes[3] = {1, 1, 1};
	struct raw_lease leases[3];
	uint64_t grace = 0;

	for (int i = 0; i < 3; i++)
		cr_assert_eq(raw_lease(sock, i == 1 ? "m@v2" : "m@v1", &leases[i]), 0);
	kept_kill(d, SIGKILL);
	cr_assert(raw_ended(sock));
	close(sock);
	cr_assert_eq(status_of(d, "leases"), 0);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume(d, sock, leases, 3, codes, &grace), 0);
	cr_assert(codes[0] == 0 && codes[1] == 0 && codes[2] == 0);
	cr_assert(grace > 0 && grace <= GRACE_LONG_MS);
	cr_assert_eq(status_of(d, "leases"), 3);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
}

GPUWMD_TEST_BY(restart, a_quota_holds_for_leases_that_are_taken_again, scene(&(struct kept){}), scene_end)
{
	const struct kept fewer = {.limits = LIMITS_SHORT "leases_per_uid = 2\n"};
	int sock = raw_client(d->socket), codes[4];
	struct raw_lease leases[4];
	uint64_t grace;

	for (int i = 0; i < 4; i++)
		cr_assert_eq(raw_lease(sock, i % 2 ? "m@v1" : "m@v2", &leases[i]), 0);
	close(sock);
	kept_configure(d, &fewer);
	kept_kill(d, SIGKILL);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume(d, sock, leases, 4, codes, &grace), 0);
	cr_assert(codes[0] == 0 && codes[1] == 0 && codes[2] == -EDQUOT && codes[3] == -EDQUOT);
	cr_assert_eq(status_of(d, "leases"), 2);
	close(sock);
}

GPUWMD_TEST_BY(restart, versions_that_are_gone_are_not_resumed, scene(&(struct kept){}), scene_end_v2)
{
	struct raw_lease freed, never = {.version = {1, 2, 3}};
	int sock = retire_under(d, &freed);

	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	kept_kill(d, SIGKILL);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &freed), -ENOENT);
	cr_assert_eq(raw_resume_one(d, sock, &never), -ENOENT);
	cr_assert_eq(status_of(d, "leases"), 0);
	close(sock);
}

GPUWMD_TEST_BY(restart, a_retiring_version_is_resumed_within_the_grace_time_only, scene(KEPT_LONG),
	       scene_end_v2)
{
	struct raw_lease lease;
	int first = retire_under(d, &lease), second;

	kept_kill(d, SIGKILL);
	close(first);
	first = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, first, &lease), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	second = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, second, &lease), -ENOENT);
	cr_assert(version_is(d, "m", "v1", "retiring"), "the lease that was resumed holds it");
	close(first);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	close(second);
}

GPUWMD_TEST_BY(restart, a_gpuwmd_that_drains_gives_leases_again, scene(KEPT_LONG), gpuwmd_stop_empty)
{
	int sock = raw_client(d->socket);
	struct raw_lease lease;

	cr_assert_eq(raw_lease(sock, "m@v1", &lease), 0);
	kept_kill(d, SIGKILL);
	close(sock);
	OK(gpuwm_drain(d->admin));
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	cr_assert(version_is(d, "m", "v1", "retiring"), "it was freed under its worker");
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v2", "none")));
}

GPUWMD_TEST_BY(restart, a_budget_below_what_is_used_is_told, scene(&(struct kept){}), scene_end)
{
	static const char words[] = ": the budget of 4.0 KiB is below the ";

	cr_assert_eq(log_count(d, words), 0);
	kept_configure(d, &(struct kept){.limits = LIMITS_SHORT "[budget]\nhost = 4096\n* = 4096\n"});
	cr_assert(kill(d->pid, SIGHUP) == 0);
	cr_assert(EVENTUALLY(SOON_MS, log_count(d, words) == 1), "a reload says nothing");
	kept_kill(d, SIGKILL);
	cr_assert_eq(log_count(d, words), 2, "a restart says nothing");
	FAILS(ENOSPC, load_try(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3"));
	kept_configure(d, &(struct kept){});
	kept_kill(d, SIGKILL);
	cr_assert_eq(log_count(d, words), 2);
}

GPUWMD_TEST_BY(restart, a_job_of_an_earlier_start_is_told_so, scene(&(struct kept){}), scene_end)
{
	uint64_t job;

	OK(load_start(d, checkpoint_write(d, "v3", SMALL(3)), "m@v3", NULL, &job));
	OK(gpuwm_job_wait(d->admin, job, -1));
	FAILS(ENOENT, gpuwm_job_wait(d->admin, job + 1, 0));
	cr_assert_str_eq(gpuwm_error()->detail, "gpuwmd lists ended jobs for an hour, the last 1000 of them");
	kept_kill(d, SIGKILL);
	FAILS(ENOENT, gpuwm_job_wait(d->admin, job, 0));
	cr_assert(strstr(gpuwm_error()->message, "it was of an earlier start of gpuwmd"), "%s",
		  gpuwm_error()->message);
	FAILS(ENOENT, gpuwm_job_cancel(d->admin, job));
	cr_assert(strstr(gpuwm_error()->message, "earlier start"), "%s", gpuwm_error()->message);
	FAILS(ENOENT, gpuwm_job_wait(d->admin, 1000000 + job, 0));
	cr_assert_str_eq(gpuwm_error()->detail, "gpuwmd lists ended jobs for an hour, the last 1000 of them");
	DROP(d, "m@v3");
}

GPUWMD_TEST_BY(restart, a_client_that_never_comes_back_holds_its_version_for_the_grace_time, scene(KEPT_LONG),
	       scene_end_v2)
{
	struct raw_lease lease;
	int sock = retire_under(d, &lease);
	int64_t killed;
	char id[33];

	hex128_format(lease.version, id);
	killed = clock_ms();
	kept_kill(d, SIGKILL);
	close(sock);
	cr_assert(version_is(d, "m", "v1", "retiring"));
	OK(gpuwm_retire(d->admin, id, GRACE_LONG_MS + SOON_MS));
	cr_assert_geq(clock_ms() - killed, GRACE_LONG_MS);
	cr_assert(version_is(d, "m", "v1", "none"));
}

GPUWMD_TEST_BY(restart, without_a_grace_time_it_is_freed_at_once,
	       scene(&(struct kept){.limits = "grace_ms = 0\n"}), scene_end_v2)
{
	struct raw_lease lease;
	int sock = retire_under(d, &lease);

	kept_kill(d, SIGKILL);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
}

GPUWMD_TEST_BY(restart, what_is_retired_within_the_grace_time_waits_for_its_end, scene(KEPT_LONG), scene_end_v2)
{
	int64_t killed = clock_ms();
	struct raw_lease lease;
	int sock;

	kept_kill(d, SIGKILL);
	OK(swap_to(d, "m", "v2", true));
	FAILS(ETIMEDOUT, gpuwm_retire(d->admin, "m@v1", 50));
	/* Its lease comes and goes: that alone must not free it. */
	sock = raw_client(d->socket);
	cr_assert_eq(raw_lease(sock, "m@v2", &lease), 0);
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	cr_assert(version_is(d, "m", "v1", "retiring") || status_of(d, "grace_ms") == 0);
	OK(gpuwm_retire(d->admin, "m@v1", SOON_MS));
	cr_assert_geq(clock_ms() - killed, GRACE_LONG_MS);
}

/* ---- starts ----------------------------------------------------------- */

GPUWMD_TEST_BY(restart, twenty_crashes_in_a_row, scene(&(struct kept){}), scene_end)
{
	char *before = kept_registry(d), *after;
	uint64_t epoch = status_of(d, "epoch");

	for (int i = 0; i < 20; i++) {
		pid_t pid = d->pid;

		cr_assert(kill(pid, SIGKILL) == 0);
		cr_assert(EVENTUALLY(SOON_MS, kept_pid(d) > 0 && kept_pid(d) != pid));
		d->pid = kept_pid(d);
	}
	kept_wait(d);
	after = kept_registry(d);
	cr_assert_str_eq(after, before);
	cr_assert_gt(status_of(d, "epoch"), epoch);
	worker_reads(d, "m", 1);
	free(before);
	free(after);
}

GPUWMD_TEST_BY(restart, a_second_daemon_is_refused_after_a_restart_too, scene(&(struct kept){}), scene_end)
{
	int status;
	pid_t pid;

	kept_kill(d, SIGKILL);
	pid = gpuwmd_spawn(d, NULL);
	cr_assert(EVENTUALLY(10000, waitpid(pid, &status, WNOHANG) == pid));
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) != 0);
	cr_assert_eq(log_count(d, "another gpuwmd serves"), 1);
	worker_reads(d, "m", 1);
}

/* The keeper has a socket then that nobody can reach. */
GPUWMD_TEST_BY(restart, a_socket_whose_file_was_removed_is_made_anew, scene(&(struct kept){}), scene_end)
{
	struct stat before, after;

	cr_assert(stat(d->socket, &before) == 0);
	cr_assert(unlink(d->socket) == 0 && unlink(d->admin_socket) == 0);
	kept_kill(d, SIGKILL);
	cr_assert_eq(log_count(d, "is made anew"), 2);
	worker_reads(d, "m", 1);
	cr_assert(chmod(d->socket, 0) == 0);
	kept_kill(d, SIGKILL);
	cr_assert_eq(log_count(d, "is made anew"), 2);
	cr_assert(stat(d->socket, &after) == 0 && after.st_mode == before.st_mode);
	worker_reads(d, "m", 1);
}

GPUWMD_TEST_BY(restart, a_drain_within_the_grace_time_says_what_is_left, scene(KEPT_LONG), gpuwmd_stop_empty)
{
	json_t *answer;

	kept_kill(d, SIGKILL);
	answer = query(d->admin, "drain", NULL);
	cr_assert_eq(json_array_size(json_object_get(answer, "left")), 2);
	json_decref(answer);
	cr_assert(EVENTUALLY(10000, version_is(d, "m", "v1", "none")));
	answer = query(d->admin, "drain", NULL);
	cr_assert_eq(json_array_size(json_object_get(answer, "left")), 1, "the pinned one is left");
	json_decref(answer);
	OK(gpuwm_unpin(d->admin, "m@v2", "night"));
	cr_assert(EVENTUALLY(10000, version_is(d, "m", "v2", "none")));
}

/* Some time that was told of these versions is an hour off. */
static bool clock_jumps(struct gpuwmd *d)
{
	json_t *answer = query(d->admin, "list", NULL), *version;
	json_int_t now = (json_int_t)time(NULL) * 1000;
	bool jumps = false;
	size_t i;

	json_array_foreach(json_object_get(answer, "versions"), i, version)
		jumps |= llabs(number(version, "created_ms") - now) > 1800000 ||
			 llabs(number(version, "ready_ms") - now) > 1800000;
	json_decref(answer);
	return jumps;
}

Test(restart, a_clock_that_jumps_by_hours_moves_no_time)
{
	struct gpuwmd *d;
	int sock;
	struct raw_lease lease;
	int64_t begin;

	SKIP_UNLESS(!SANITIZED, "the sanitizer must be the first library");
	d = scene(&(struct kept){.preload = "clock-jump", .limits = LIMITS_LONG});
	cr_assert(clock_jumps(d));
	sock = retire_under(d, &lease);
	begin = clock_ms();
	FAILS(ETIMEDOUT, gpuwm_retire(d->admin, "m@v1", 200));
	/* gpuwmd's loop counts whole milliseconds, from the one that had begun. */
	cr_assert(clock_ms() - begin >= 199 && clock_ms() - begin < SOON_MS);
	begin = clock_ms();
	kept_kill(d, SIGKILL);
	close(sock);
	sock = raw_client(d->socket);
	cr_assert_eq(raw_resume_one(d, sock, &lease), 0);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	cr_assert_geq(clock_ms() - begin, GRACE_LONG_MS);
	cr_assert(version_is(d, "m", "v1", "retiring"));
	close(sock);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	scene_end_v2(d);
}
