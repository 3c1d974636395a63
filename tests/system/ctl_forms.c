/* gpuwmctl: the forms of what it prints, errors as data, --watch, and outcomes as they are told. */
#include "harness.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(ctl_forms);

#define PRINTS(text) cr_assert_str_eq(output, text, "%s", output)

static void worker_ends(struct process *worker)
{
	process_tell(worker, 'd');
	process_finish(worker);
}

/* ---- forms ------------------------------------------------------------------ */

GPUWMD_TEST_BY(ctl_forms, name_is_one_reference_a_line, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);
	char pid[24];

	CTL_IS(0, "ls", "-o", "name");
	PRINTS("m@v1\nm@v2\n");
	CTL_IS(0, "show", "m", "-o", "name");
	PRINTS("m@v1\n");
	CTL_IS(0, "ps", "-o", "name");
	PRINTS("1\n");
	snprintf(pid, sizeof(pid), "\n%d\n", (int)worker.pid);
	CTL_IS(0, "clients", "-o", "name");
	SAYS(pid);
	CTL_IS(0, "jobs", "-o", "name");
	PRINTS("1\n2\n");
	CTL_IS(0, "status", "-o", "name");
	SAYS("host\n");
	CTL_IS(0, "swap", "m", "v2", "-o", "name");
	PRINTS("m@v2\n");
	CTL_IS(0, "regions", "-o", "name");
	PRINTS("");
	worker_ends(&worker);
}

GPUWMD_TEST_BY(ctl_forms, name_is_refused_where_there_is_none, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	CTL_IS(2, "events", "-o", "name");
	SAYS("events has no -o name");
	CTL_IS(2, "ls", "-o", "xml");
	SAYS("-o takes table, wide, json or name, not 'xml'");
}

GPUWMD_TEST_BY(ctl_forms, wide_has_ids_as_json_has, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_t *list;
	const char *id;

	CTL_IS(0, "ls", "-o", "json");
	list = json_loads(output, 0, NULL);
	id = json_string_value(
		json_object_get(json_array_get(json_object_get(list, "versions"), 0), "version"));
	CTL_IS(0, "ls");
	cr_assert_not(strstr(output, id), "%s", output);
	CTL_IS(0, "ls", "-o", "wide");
	SAYS(id);
	SAYS("TENSORS");
	json_decref(list);
}

GPUWMD_TEST_BY(ctl_forms, errors_are_data_where_data_was_asked_for, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	CTL_IS(4, "-o", "json", "show", "m@v9");
	cr_assert_eq(strncmp(output, "{\"error\":{\"code\":\"ENOENT\",\"message\":\"", 37), 0, "%s", output);
	SAYS("\"exit\":4}}\n");
	CTL_IS(5, "retire", "m", "-o", "json");
	cr_assert_eq(strncmp(output, "{\"error\":{\"code\":\"EBUSY\"", 24), 0, "%s", output);
	CTL_IS(2, "ls", "--bogus", "-o", "json");
	SAYS("{\"error\":{\"code\":\"EINVAL\",\"message\":\"ls has no option --bogus\"");
	CTL_IS(3, "--socket", "/nonexistent/gpuwm.sock", "ping", "--output=json");
	SAYS("\"exit\":3}}");
}

GPUWMD_TEST_BY(ctl_forms, with_data_stderr_has_no_progress, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_error_t error;
	json_t *job;

	CTL_IS(0, "-o", "json", "load", checkpoint_write(d, "v3", SMALL(3)), "m@v3", "--device", d->device,
	       "--wait");
	job = json_loads(output, 0, &error);
	cr_assert(job, "%s: %s", error.text, output);
	json_decref(job);
}

GPUWMD_TEST_BY(ctl_forms, a_model_that_has_nothing_is_not_found, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	CTL_IS(4, "ls", "nosuch");
	SAYS("gpuwmctl: model nosuch has no versions\n");
	CTL_IS(4, "ls", "nosuch", "-o", "json");
	SAYS("{\"error\":{\"code\":\"ENOENT\"");
	CTL_IS(0, "ls", "m");
	SAYS("m@v2");
}

/* ---- outcomes --------------------------------------------------------------- */

GPUWMD_TEST_BY(ctl_forms, what_is_so_already_is_unchanged, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "pin", "m", "night");
	PRINTS("pinned: m@v1 as 'night'\n");
	CTL_IS(0, "pin", "m@v1", "night");
	PRINTS("unchanged: m@v1 is pinned as 'night' already\n");
	CTL_IS(0, "swap", "m", "v1");
	PRINTS("unchanged: m@current is v1 already\n");
	CTL_IS(0, "swap", "m", "v1", "-o", "json");
	SAYS("\"changed\":false");
	CTL_IS(0, "swap", "m", "v2");
	PRINTS("m@current is now v2; it was v1\n");
	CTL_IS(0, "retire", "m@v1");
	SAYS("m@v1 is retiring: 1 pin holds it\n");
	SAYS("gpuwmctl unpin m@v1 night\n");
	CTL_IS(0, "retire", "m@v1");
	SAYS("unchanged: m@v1 is retiring already: 1 pin holds it\n");
	CTL_IS(0, "unpin", "m@v1", "night");
	SAYS("unpinned: m@v1 was pinned as 'night', and is ");
}

GPUWMD_TEST_BY(ctl_forms, retire_tells_who_holds_the_version_and_what_ends_that,
	       with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m@v2", 2);
	char pid[24];

	CTL_IS(0, "retire", "m@v2");
	SAYS("m@v2 is retiring: 1 lease holds it\n");
	snprintf(pid, sizeof(pid), "%d", (int)worker.pid);
	SAYS(pid);
	SAYS("gpuwmctl retire m@v2 --force revokes the leases");
	CTL_IS(0, "retire", "m@v2", "--force", "--after", "1h");
	SAYS("; gpuwmd revokes them in 60:00 min\n");
	cr_assert_not(strstr(output, "--force"), "%s", output);
	worker_ends(&worker);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v2", "none")));
}

GPUWMD_TEST_BY(ctl_forms, swap_tells_who_keeps_what_it_retires, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);

	CTL_IS(0, "swap", "m", "v2", "--retire-old");
	PRINTS("m@current is now v2; it was v1, which is retired: 1 lease holds it\n"
	       "gpuwmctl ps lists the leases; gpuwmctl retire m@v1 --force revokes them\n");
	worker_ends(&worker);
}

GPUWMD_TEST_BY(ctl_forms, retire_takes_the_aliases_along, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);

	CTL_IS(5, "retire", "m@v1", "--force");
	SAYS("; or remove them with the version: gpuwmctl retire m@v1 --aliases\n");
	CTL_IS(0, "retire", "m", "--aliases", "--force", "--wait", "5");
	PRINTS("the alias current is removed\nm@v1 is freed\n");
	process_tell(&worker, 'e');
	process_finish(&worker);
}

GPUWMD_TEST_BY(ctl_forms, status_has_limits_for_those_who_ask, gpuwmd_start(NULL), gpuwmd_stop)
{
	CTL_IS(0, "status");
	cr_assert_null(strstr(output, "limits"), "%s", output);
	CTL_IS(0, "status", "-v");
	SAYS("\nlimits: ");
	CTL_IS(0, "status", "-o", "json");
	SAYS("\"limits\":{");
}

GPUWMD_TEST_BY(ctl_forms, kick_tells_what_it_revoked, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);

	CTL_IS(0, "kick", "1");
	SAYS("revoked: 1 lease; gpuwmctl ps lists those whose process may still map the memory\n");
	CTL_IS(4, "kick", "--uid", "4000000000");
	CTL_IS(4, "kick", "7.1");
	CTL_IS(2, "kick", "7.");
	CTL_IS(2, "kick", "7.4294967296");
	CTL_IS(4, "kick", "--uid", "daemon");
	CTL_IS(2, "kick", "--uid", "nobody-of-this-name");
	SAYS("--uid takes a user's name or number, and there is no user 'nobody-of-this-name' here\n");
	process_tell(&worker, 'e');
	process_finish(&worker);
}

/* No terminal: there is nobody to ask. */
GPUWMD_TEST_BY(ctl_forms, drain_tells_whom_it_concerns_and_what_became_of_it,
	       with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct process worker = worker_start(d, "m", 1);

	CTL_IS(2, "drain");
	SAYS("drain will retire 2 versions (");
	SAYS(") with 1 lease of 1 process, and remove 1 alias, 0 regions and 0 running jobs\n");
	SAYS("nothing was drained: drain asks first, and stdin or stderr is no terminal\n  --yes says that you mean it\n");
	cr_assert(version_is(d, "m", "v1", "ready"));
	CTL_IS(5, "drain", "--yes");
	SAYS("drained: 1 version is freed, 1 still held\ngpuwmd takes nothing new until it is started again\n");
	SAYS("STILL HELD  LEASES  PINS\nm@v1             1     0\n");
	SAYS("gpuwmctl ps lists the leases");
	worker_ends(&worker);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "none")));
	CTL_IS(0, "drain", "--yes", "-o", "json");
	PRINTS("{\"left\":[],\"freed\":0}\n");
}

/* ---- --watch ------------------------------------------------------------------ */

/* Reads until the text has come. */
static void run_shows(struct ctl_run *run, const char *text)
{
	size_t used = 0;

	output[0] = '\0';
	while (!strstr(output, text)) {
		ssize_t got = read(run->from, output + used, sizeof(output) - 1 - used);

		cr_assert_gt(got, 0, "no %s in: %s", text, output);
		used += (size_t)got;
		output[used] = '\0';
	}
}

/* The interval is longer than the test: what comes, comes of an event. */
GPUWMD_TEST_BY(ctl_forms, watch_shows_what_changes_and_ends_with_an_interrupt,
	       with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct ctl_run run = ctl_start("ls", "m", "--watch", "3600", NULL);
	struct ctl_run names = ctl_start("ls", "-o", "name", "--watch", NULL);

	run_shows(&run, "m@v2");
	run_shows(&names, "m@v1\nm@v2\n");
	CTL_IS(0, "swap", "m@prod", "v2");
	run_shows(&run, "prod");
	kill(run.pid, SIGINT);
	ctl_ends(&run, 0);
	kill(names.pid, SIGINT);
	ctl_ends(&names, 0);
}

GPUWMD_TEST_BY(ctl_forms, watch_ends_with_what_it_watches, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	struct ctl_run run;

	CTL_IS(4, "ls", "nosuch", "--watch");
	SAYS("model nosuch has no versions");
	CTL_IS(2, "ls", "--watch", "10ms");
	SAYS("--watch takes 100 ms at least");
	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "retire", "m@v1", "--wait", "5");
	run = ctl_start("ls", "m", "-o", "json", "--watch", "3600", NULL);
	run_shows(&run, "\n");
	CTL_IS(0, "swap", "m", "--remove");
	CTL_IS(0, "retire", "m@v2", "--wait", "5");
	ctl_ends(&run, 4);
	SAYS("{\"error\":{\"code\":\"ENOENT\"");
}
