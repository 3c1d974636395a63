/* One line and one event for each change, also for those that gpuwmd refuses. */
#include "daemon/base/complaint.h"
#include "daemon/net/peer.h"
#include "tests/support/daemon/caught.h"
#include "tests/support/daemon/server.h"

#include <sys/prctl.h>

/* gpuwmd calls its peers as the kernel does. */
static void begin_named(void)
{
	prctl(PR_SET_NAME, "daemon_audit");
	server_open();
}

TestSuite(audit, .init = begin_named, .fini = server_close, .timeout = 60);

/* What the line of this process says before its unit and after it. */
static void expect_line(const char *text, const char *end)
{
	char begin[128];

	snprintf(begin, sizeof(begin), "audit: uid %u (daemon_audit, pid %d", (unsigned)getuid(),
		 (int)getpid());
	cr_expect(strstr(text, begin), "no \"%s\" in: %s", begin, text);
	cr_expect(strstr(text, end), "no \"%s\" in: %s", end, text);
}

static unsigned lines(const char *text)
{
	unsigned count = 0;

	for (; (text = strstr(text, "audit: ")); text++)
		count++;
	return count;
}

Test(audit, a_swap_is_one_line_with_what_it_did)
{
	int admin = greeted(SESSION_ADMIN);
	const char *text;

	ready("m", "v1");
	ready("m", "v2");
	log_catch();
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("to", "v2")), 0);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("to", "v2")), 0);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("alias", "blue"), TEXT("to", "v1")), 0);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("alias", "blue")), 0);
	text = log_caught();
	expect_line(text, "): hot_swap m: current to v2: done: v2 instead of v1\n");
	expect_line(text, "): hot_swap m: current to v2: done: unchanged\n");
	expect_line(text, "): hot_swap m: remove blue: done: none instead of v1\n");
	cr_expect_eq(lines(text), 4, "%s", text);
}

/* A refusal is told with what was expected. */
Test(audit, a_swap_tells_what_it_expects)
{
	int admin = greeted(SESSION_ADMIN);
	char id[VERSION_ID_TEXT], words[160];
	const char *text;

	hex128_format(ready("m", "v1")->id.bytes, id);
	ready("m", "v2");
	log_catch();
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("to", "v2"), TEXT("expect", id)), 0);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m"), TEXT("to", "v1"), TEXT("expect", id)), -EBUSY);
	text = log_caught();
	snprintf(words, sizeof(words),
		 "): hot_swap m: current to v2, if it is %s now: done: v2 instead of v1\n", id);
	expect_line(text, words);
	snprintf(words, sizeof(words), "): hot_swap m: current to v1, if it is %s now: refused, EBUSY: ", id);
	expect_line(text, words);
}

Test(audit, what_operators_do_to_versions)
{
	int admin = greeted(SESSION_ADMIN);
	char id[VERSION_ID_TEXT], pin[128];
	struct version *version = ready("m", "v1");
	const char *text;

	hex128_format(version->id.bytes, id);
	snprintf(pin, sizeof(pin), "): pin_version %s (m@v1), pin keep: done\n", id);
	log_catch();
	cr_assert_eq(ASK(admin, "pin_version", TEXT("ref", id), TEXT("pin", "keep")), 0);
	cr_assert_eq(ASK(admin, "unpin_version", TEXT("ref", "m"), TEXT("pin", "keep")), 0);
	cr_assert_eq(ASK(admin, "retire", TEXT("ref", "m@v1")), -EBUSY);
	cr_assert_eq(ASK(admin, "hot_swap", TEXT("model", "m")), 0);
	cr_assert_eq(ASK(admin, "retire", TEXT("ref", "m@v1"), FLAG("force", true), NUMBER("after_ms", 5)), 0);
	cr_assert_eq(ASK(admin, "remove", TEXT("ref", "m@v9")), -ENOENT);
	cr_assert_eq(ASK(admin, "drain", TEXT("device", "GPU-0")), -ENODEV);
	text = log_caught();
	expect_line(text, pin);
	expect_line(text, "): unpin_version m@current (m@v1), pin keep: done\n");
	expect_line(text, "): retire m@v1: refused, EBUSY: ");
	expect_line(text, "): retire m@v1 by force in 5 ms: done: leases: 0, revoked: 0, pins: 0\n");
	expect_line(text, "): remove m@v9: refused, ENOENT: ");
	expect_line(text, "): drain what was lost with GPU-0: refused, ENODEV: no device \"GPU-0\" here\n");
	cr_expect_eq(lines(text), 7, "%s", text);
	TURN_UNTIL(registry_counts(server->ledger.registry).fds == 0);
}

Test(audit, a_kick_names_whose_leases_it_took)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);
	char expected[128];
	const char *text;

	ready("m", "v1");
	for (int i = 0; i < 2; i++) {
		send_get(worker, 1, "m", 0);
		cr_assert_eq(answered(worker), 0);
	}
	snprintf(expected, sizeof(expected),
		 "): kick pid %d: done: 2 leases are revoked, of daemon_audit (pid %d, uid %u)\n",
		 (int)getpid(), (int)getpid(), (unsigned)getuid());
	log_catch();
	cr_assert_eq(ASK(admin, "kick", NUMBER("pid", (uint64_t)getpid())), 0);
	text = log_caught();
	expect_line(text, expected);
	cr_expect_eq(lines(text), 1, "one line, not one for each lease: %s", text);
}

Test(audit, what_is_refused_for_the_role_is_told_with_its_arguments)
{
	int worker = greeted(SESSION_WORKER), stranger = connect_as(SESSION_WORKER);
	const char *text;

	log_catch();
	cr_assert_eq(ask(worker, "drain"), -EACCES);
	cr_assert_eq(ASK(worker, "load", TEXT("name", "m@v1"), TEXT("source", "/x\ny")), -EACCES);
	cr_assert_eq(ask(worker, "kick"), -EACCES);
	cr_assert_eq(ask(stranger, "reload"), -EPROTO);
	text = log_caught();
	expect_line(text, "): drain everything: refused, EACCES: drain needs the role operator\n");
	expect_line(
		text,
		"): load m@v1 from /x?y: refused, EACCES: a load of a path or of a peer's version needs the role operator\n");
	expect_line(text, "): kick: refused, EACCES: kick needs the role operator\n");
	expect_line(text, "): reload the flags: refused, EPROTO: reload came before hello\n");
}

Test(audit, a_process_that_calls_itself_nothing_is_told_with_its_pid)
{
	char expected[64];
	int worker;

	cr_assert_eq(prctl(PR_SET_NAME, ""), 0);
	worker = greeted(SESSION_WORKER);
	log_catch();
	cr_assert_eq(ask(worker, "drain"), -EACCES);
	snprintf(expected, sizeof(expected), "audit: uid %u (pid %d", (unsigned)getuid(), (int)getpid());
	cr_expect(strstr(log_caught(), expected), "%s", log_caught());
}

Test(audit, attaching_and_looking_are_no_changes)
{
	int worker = greeted(SESSION_WORKER);
	uint64_t lease;

	ready("m", "v1");
	log_catch();
	send_get(worker, 1, "m", 0);
	cr_assert_eq(answered(worker), 0);
	lease = answer_u64("lease");
	cr_assert_eq(ASK(worker, "release", NUMBER("lease", lease)), 0);
	send_get(worker, 1, "nothing", 0);
	cr_assert_eq(answered(worker), -ENOENT);
	cr_assert_eq(ask(worker, "status"), 0);
	cr_expect_str_eq(log_caught(), "");
}

Test(audit, a_cancel_that_comes_too_late_is_told_when_it_is_refused)
{
	int admin = greeted(SESSION_ADMIN);
	const char *text;

	log_catch();
	cr_assert_eq(ASK(admin, "cancel", NUMBER("job", 7)), -ENOENT);
	text = log_caught();
	expect_line(text, "): cancel job 7: refused, ENOENT: no job 7\n");
}

Test(audit, a_publish_is_told_at_its_end)
{
	struct publish_part *part;
	struct publish *publish;
	struct error why;
	const char *text;

	log_catch();
	ready_with("m", "v1", 2);
	publish = building("m", "v2", &part);
	error_set(&why, -ECANCELED, NULL, "its publisher left");
	versions_fail(&server->work, publish, &why, NULL);
	text = log_caught();
	cr_expect(strstr(text, "audit: uid 0: publish m@v1, 4.0 KiB in 1 part: done\n"), "%s", text);
	cr_expect(strstr(text, ": publish m@v2: failed, ECANCELED: its publisher left\n"), "%s", text);
}

/* ---- events ---- */

Test(audit, its_event_is_for_operators_and_observers)
{
	int admin = greeted(SESSION_ADMIN), worker = greeted(SESSION_WORKER);

	ready("m", "v1");
	cr_assert_eq(ask(admin, "subscribe"), 0);
	cr_assert_eq(ask(worker, "subscribe"), 0);
	cr_assert_eq(ASK(worker, "pin_version", TEXT("ref", "m@v1"), TEXT("pin", "keep")), -EACCES);
	cr_assert(comes(admin));
	cr_expect_str_eq(answer_text("kind"), "audit");
	cr_expect_str_eq(answer_text("method"), "pin_version");
	cr_expect_str_eq(answer_text("model"), "m");
	cr_expect_str_eq(answer_text("tag"), "v1");
	cr_expect_str_eq(answer_text("what"), "m@v1, pin keep");
	cr_expect_str_eq(answer_text("code"), "EACCES");
	cr_expect_str_eq(answer_text("command"), "daemon_audit");
	cr_expect_eq(answer_u64("pid"), (uint64_t)getpid());
	cr_expect_eq(answer_u64("uid"), getuid());
	cr_expect_not(comes(worker));
}

Test(audit, a_flood_of_refusals_is_counted_and_does_not_hide_changes)
{
	int worker = greeted(SESSION_WORKER), admin = greeted(SESSION_ADMIN);
	uint64_t before = event_last(server->ledger.events);
	const char *text;

	ready("m", "v1");
	log_catch();
	for (int i = 0; i < 3 * LOG_LINES_BURST; i++)
		cr_assert_eq(ask(worker, "drain"), -EACCES);
	cr_assert_eq(ASK(admin, "pin_version", TEXT("ref", "m@v1"), TEXT("pin", "keep")), 0);
	complaints_end(server->net.complaints);
	text = log_caught();
	expect_line(text, "pin keep: done\n");
	cr_expect(lines(text) < 2 * LOG_LINES_BURST, "%u lines", lines(text));
	cr_expect(strstr(text, "were not logged: refused changes\n"), "%s", text);
	cr_expect(event_last(server->ledger.events) - before < 2 * LOG_LINES_BURST + 4);
	server->net.complaints = complaints_free(server->net.complaints);
}

/* ---- units ---- */

static const char *unit_of(const char *cgroup)
{
	static char unit[NAME_BYTES_MAX + 1];
	char text[1024];

	snprintf(text, sizeof(text), "%s", cgroup);
	peer_unit_of(text, unit);
	return unit;
}

Test(peer_unit, of_the_host_and_not_what_is_inside_of_it)
{
	cr_expect_str_eq(unit_of("0::/system.slice/train.service\n"), "train.service");
	cr_expect_str_eq(unit_of("0::/system.slice/docker-0123456789abcdef.scope/init\n"),
			 "docker-0123456789abcdef.scope");
	cr_expect_str_eq(unit_of("0::/machine.slice/n.service/payload/system.slice/false.service\n"),
			 "n.service");
	cr_expect_str_eq(unit_of("0::/user.slice/user-1000.slice/session-3.scope\n"), "session-3.scope");
	cr_expect_str_eq(unit_of("0::/../../pod1.slice/cri-containerd-77.scope\n"), "cri-containerd-77.scope");
}

Test(peer_unit, of_a_container_without_a_unit)
{
	cr_expect_str_eq(unit_of("0::/docker/0123456789abcdef\n"), "0123456789abcdef");
	cr_expect_str_eq(unit_of("0::/\n"), "");
	cr_expect_str_eq(unit_of(""), "");
	cr_expect_str_eq(unit_of("nonsense\n0:\n"), "");
}

Test(peer_unit, of_older_hierarchies)
{
	cr_expect_str_eq(unit_of("12:memory:/x\n1:name=systemd:/system.slice/a.service\n0::/\n"), "a.service");
	cr_expect_str_eq(unit_of("1:name=systemd:/old.service\n0::/system.slice/new.service\n"), "new.service");
}

Test(peer_unit, a_process_that_has_exited_has_none)
{
	struct peer peer = {.pid = 0, .pidfd = -1};
	char unit[NAME_BYTES_MAX + 1] = "x";

	peer_unit(&peer, unit);
	cr_expect_str_eq(unit, "", "of another PID namespace");
	peer.pid = getpid();
	peer.pidfd = memfd_create("always readable", MFD_CLOEXEC);
	peer_unit(&peer, unit);
	cr_expect_str_eq(unit, "");
	close(peer.pidfd);
}
