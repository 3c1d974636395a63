/* gpuwmctl: alias, rollback and rm; suggestions; what it says about itself and where the log is. */
#include "kept.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define NOBODY 65534

SYSTEM_SUITE(ctl_verbs);

/* ---- alias, rollback --------------------------------------------------- */

GPUWMD_TEST_BY(ctl_verbs, alias_makes_and_moves, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	char id[33];
	json_t *version = version_entry(d, "m", "v1");

	snprintf(id, sizeof(id), "%s", json_string_value(json_object_get(version, "version")));
	json_decref(version);
	CTL_IS(0, "alias", "m@v1", "prod");
	SAYS("m@prod is now v1\n");
	CTL_IS(0, "alias", "m@v2", "prod");
	SAYS("m@prod is now v2; it was v1\n");
	CTL_IS(0, "alias", id, "prod");
	SAYS("m@prod is now v1; it was v2\n");
	CTL_IS(0, "alias", "m", "canary");
	SAYS("m@canary is now v1\n");
	CTL_IS(0, "swap", "m@canary", "--remove");
	CTL_IS(5, "alias", "m@v1", "v2");
	SAYS("\"v2\" is a tag of model \"m\"");
	CTL_IS(4, "alias", "00000000000000000000000000000001", "prod");
	SAYS("there is no version 00000000000000000000000000000001\n  gpuwmctl ls lists the versions\n");
	CTL_IS(4, "alias", "m@v3", "prod");
}

GPUWMD_TEST_BY(ctl_verbs, rollback_goes_back_and_forth, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(4, "rollback", "m");
	SAYS("m@current has named no other version, or that one is retired\n");
	SAYS("gpuwmctl swap m@current TO");
	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "rollback", "m");
	SAYS("m@current is now v1; it was v2\n");
	CTL_IS(0, "rollback", "m");
	SAYS("m@current is now v2; it was v1\n");
	CTL_IS(2, "rollback", "m", "previous");
	SAYS("roll current back");
}

GPUWMD_TEST_BY(ctl_verbs, rollback_goes_back_with_your_own_aliases, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop)
{
	CTL_IS(4, "rollback", "m", "prod");
	SAYS("model \"m\" has no alias \"prod\"\n  gpuwmctl ls m lists versions and aliases\n");
	CTL_IS(4, "rollback", "m@prod");
	SAYS("model \"m\" has no alias \"prod\"\n");
	CTL_IS(2, "rollback", "m@prod", "prod");
	SAYS("the alias is given twice: prod and prod\n  write MODEL@ALIAS, or MODEL ALIAS\n");
	CTL_IS(4, "rollback", "n", "prod");
	SAYS("there is no model \"n\"");
	CTL_IS(0, "alias", "m@v1", "prod");
	CTL_IS(4, "rollback", "m", "prod");
	CTL_IS(0, "alias", "m@v2", "prod");
	CTL_IS(0, "rollback", "m", "prod");
	SAYS("m@prod is now v1; it was v2\n");
	CTL_IS(0, "rollback", "m", "prod");
	SAYS("m@prod is now v2; it was v1\n");
	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "retire", "m@v1", "--wait", "5");
	CTL_IS(4, "rollback", "m", "prod");
	CTL_IS(4, "rollback", "m");
}

/* Somebody else may move the alias between the look and the swap: gpuwmd is to move it only from what was seen. */
GPUWMD_TEST_BY(ctl_verbs, rollback_moves_only_what_it_saw, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	json_t *one = version_entry(d, "m", "v1"), *two = version_entry(d, "m", "v2");
	char words[200];

	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "rollback", "m");
	snprintf(words, sizeof(words), ": hot_swap m: current to %s, if it is %s now: done: v1 instead of v2\n",
		 json_string_value(json_object_get(one, "version")),
		 json_string_value(json_object_get(two, "version")));
	cr_expect(EVENTUALLY(SOON_MS, log_says(d, words)), "no line with \"%s\"", words);
	json_decref(one);
	json_decref(two);
}

GPUWMD_TEST_BY(ctl_verbs, rollback_knows_the_way_after_a_restart,
	       with_two_versions(gpuwmd_start_kept(&(struct kept){})), gpuwmd_stop_empty)
{
	CTL_IS(0, "alias", "m@v1", "prod");
	CTL_IS(0, "alias", "m@v2", "prod");
	kept_kill(d, SIGKILL);
	CTL_IS(0, "rollback", "m", "prod");
	SAYS("m@prod is now v1; it was v2\n");
	DROP(d, "m@v1", "m@v2");
}

/* ---- rm ----------------------------------------------------------------- */

GPUWMD_TEST_BY(ctl_verbs, rm_frees_what_nobody_holds, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	CTL_IS(0, "rm", "m@v2");
	cr_assert_str_eq(output, "m@v2 is freed\n");
	cr_assert(version_is(d, "m", "v2", "none"));
	CTL_IS(4, "rm", "m@v2");
}

GPUWMD_TEST_BY(ctl_verbs, rm_takes_aliases_only_if_it_is_told_so, with_two_versions(gpuwmd_start(NULL)),
	       gpuwmd_stop_empty)
{
	CTL_IS(0, "swap", "m", "v2");
	CTL_IS(0, "alias", "m@v2", "prod");
	CTL_IS(5, "rm", "m@v2");
	SAYS("m@v2 is named by 2 aliases\n  move or remove first: current, prod; or remove them with the version: "
	     "gpuwmctl rm m@v2 --aliases\n");
	cr_assert(version_is(d, "m", "v2", "ready"));
	CTL_IS(0, "rm", "m@v1");
	cr_assert_str_eq(output, "m@v1 is freed\n", "previous does not keep it: %s", output);
	CTL_IS(0, "-o", "json", "rm", "m@v2", "--aliases");
	SAYS("\"state\":\"freed\",\"aliases\":[\"current\",\"prod\"]");
}

GPUWMD_TEST_BY(ctl_verbs, rm_says_who_holds_it, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop_empty)
{
	struct process worker = worker_start(d, "m@v1", 1);
	char pid[24];

	CTL_IS(0, "pin", "m@v1", "night");
	CTL_IS(0, "rm", "m@v1", "--aliases");
	SAYS("the alias current is removed\n");
	SAYS("m@v1 is retiring: 1 lease and 1 pin hold it; it is freed when the last one is gone\n");
	SAYS("pinned as 'night': gpuwmctl unpin ");
	snprintf(pid, sizeof(pid), " %d ", (int)worker.pid);
	SAYS(pid);
	CTL_IS(0, "-o", "json", "rm", "m@v1");
	SAYS("\"state\":\"retiring\",\"aliases\":[],\"pins\":[\"night\"],\"leases\":[{");
	CTL_IS(5, "retire", "m@v1", "--force");
	SAYS("gpuwmctl: m@v1 has 1 pin\n  unpin first: night\n");
	CTL_IS(0, "unpin", "m@v1", "night");
	process_tell(&worker, 'd');
	process_finish(&worker);
	CTL_IS(0, "wait", "m@v1", "--for", "freed", "--timeout", "10s");
	CTL_IS(0, "rm", "m@v2");
}

/* A publisher of the group nogroup, whose version gets an alias of somebody else. argv: the device. */
static int publisher_removes(int argc, char **argv)
{
	struct gpuwm_client *client;
	struct gpuwm_publish *publish;
	int code;

	(void)argc;
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(NOBODY) == 0 && setuid(NOBODY) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(publish_begin(client, argv[0], "m@v2", SMALL(2), &publish) == 0);
	child_say('b');
	child_hear();
	CHILD_ASSERT(publish_fill(publish, SMALL(2)) == 0 && gpuwm_publish_commit(publish, NULL) == 0);
	child_say('r');
	child_hear();
	code = CTL("rm", "m@v2", "--aliases");
	fputs(output, stderr);
	gpuwm_close(client);
	return code;
}

GPUWMD_TEST_IF(ctl_verbs, rm_leaves_the_aliases_of_others, NEEDS_ROOT(),
	       gpuwmd_start("--set", "socket.mode=0666", "--set", "access.publish_group=nogroup", NULL),
	       gpuwmd_stop_empty)
{
	struct process publisher = process_start(publisher_removes, d->device, NULL);
	int status;

	SKIP_UNLESS(build_is_open_to(NOBODY), "the programs lie where only root can reach them");
	process_expect(&publisher, 'b');
	load_small(d, 1); /* so the model is an operator's */
	process_tell(&publisher, 'c');
	process_expect(&publisher, 'r');
	CTL_IS(0, "alias", "m@v2", "prod");
	process_tell(&publisher, 'r');
	status = process_join(&publisher);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 6, "%#x", status);
	cr_assert(version_is(d, "m", "v2", "ready"));
	DROP(d, "m@v1", "m@v2");
}

/* Within the time in which clients come back, gpuwmd frees nothing. */
static struct gpuwmd *start_kept_with_grace(void)
{
	struct gpuwmd *d = gpuwmd_start_kept(&(struct kept){.limits = "grace_ms = 6000\n"});

	load_small(d, 1);
	kept_kill(d, SIGKILL);
	return d;
}

GPUWMD_TEST_BY(ctl_verbs, rm_does_not_wait_for_the_end_of_a_restart, start_kept_with_grace(), gpuwmd_stop_empty)
{
	CTL_IS(0, "rm", "m@v1", "--aliases");
	SAYS("\nm@v1 is being freed\n");
	CTL_IS(0, "wait", "m@v1", "--for", "freed");
}

GPUWMD_TEST_BY(ctl_verbs, status_says_for_how_many_seconds_nothing_is_freed, start_kept_with_grace(),
	       gpuwmd_stop)
{
	double seconds = 0;
	const char *told;
	int end = 0;

	CTL_IS(0, "status");
	told = strstr(output, "; nothing is freed for ");
	cr_assert(told && sscanf(told, "; nothing is freed for %lf s more%n", &seconds, &end) == 1 && end > 0,
		  "%s", output);
	cr_assert(seconds > 0 && seconds <= 6, "%s", output);
}

/* ---- what was probably meant --------------------------------------------- */

static void says_no_hint(void)
{
	cr_expect_not(strstr(output, "did you mean"), "%s", output);
}

GPUWMD_TEST_BY(ctl_verbs, misspelled_names_are_guessed, with_two_versions(gpuwmd_start(NULL)), gpuwmd_stop)
{
	const char *path = checkpoint_write(d, "x", SMALL(3));

	CTL_IS(0, "load", path, "llama@first", "--device", d->device, "--wait");
	CTL_IS(4, "show", "lama");
	SAYS("\n  did you mean llama?\n");
	CTL_IS(4, "retire", "lama@first");
	SAYS("\n  did you mean llama@first?\n");
	CTL_IS(4, "verify", "llama@frist");
	SAYS("\n  did you mean llama@first?\n");
	CTL_IS(4, "swap", "llama", "fist");
	SAYS("\n  did you mean first?\n");
	CTL_IS(4, "rollback", "llama", "curent");
	SAYS("\n  did you mean current?\n");
	CTL_IS(4, "rollback", "lamma");
	SAYS("\n  did you mean llama?\n");
	CTL_IS(4, "show", "m@v3");
	says_no_hint();
	CTL_IS(4, "show", "elephant");
	says_no_hint();
	CTL_IS(4, "unpin", "m@v1", "night");
	says_no_hint();
	CTL_IS(4, "-o", "json", "show", "lama");
	says_no_hint();
	CTL_IS(0, "rm", "llama@first", "--aliases");
}

Test(ctl_verbs, misspelled_commands_and_options_are_guessed)
{
	CTL_IS(2, "sawp");
	cr_assert_str_eq(output,
			 "gpuwmctl: there is no command 'sawp'\n  did you mean swap? gpuwmctl --help lists the "
			 "commands\n");
	CTL_IS(2, "help", "complet");
	cr_assert_str_eq(output,
			 "gpuwmctl: there is no command 'complet'\n  gpuwmctl --help lists the commands\n",
			 "what is hidden is not guessed");
	CTL_IS(2, "swap", "--expct", "x");
	SAYS("swap has no option --expct\n  did you mean --expect? gpuwmctl swap --help lists the options\n");
	CTL_IS(2, "swap", "--re");
	SAYS("swap has no option --re\n  did you mean --retire-old? ");
	CTL_IS(2, "--devise", "x", "ls");
	SAYS("gpuwmctl has no option --devise; a command's options stand after its name\n");
	CTL_IS(2, "ls", "-q");
	SAYS("ls has no option -q\n");
	CTL_IS(2, "swap", "m", "--load");
	SAYS("--load needs a value: --load SOURCE\n  load SOURCE as the new version TO");
	CTL_IS(2, "swap", "m", "--remove=x");
	SAYS("--remove takes no value\n");
	CTL_IS(2, "swap", "m", "v2", "--keep-old");
	SAYS("--keep-old needs --load\n");
	CTL_IS(2, "swap", "m", "v2", "v3");
	SAYS("swap takes at most 2 words, but 3 are given\n  usage: gpuwmctl swap ");
	CTL_IS(2, "ls", "m", "n");
	SAYS("ls takes at most 1 word, but 2 are given\n");
	CTL_IS(2, "ps", "m");
	SAYS("ps takes options only, not 'm'\n");
	CTL_IS(2, "pin", "m");
	SAYS("pin needs NAME\n");
}

/* ---- about gpuwmctl ------------------------------------------------------- */

Test(ctl_verbs, help_shows_a_command_with_options_and_an_example)
{
	CTL_IS(0, "help", "list");
	cr_assert_str_eq(output,
			 "usage: gpuwmctl ls [MODEL] [--peers] [--config FILE] [--watch [SECONDS]]\n"
			 "\n"
			 "list versions, or those of one model\n"
			 "Also: list\n"
			 "\n"
			 "For each version: aliases, state, devices, size, leases, pins, owner and age.\n"
			 "\n"
			 "options:\n"
			 "  --peers            the versions of other nodes: those of [peers] in\n"
			 "                     gpuwmd.conf\n"
			 "  --config FILE      gpuwmd.conf (default: that of the gpuwmd that runs) (needs\n"
			 "                     --peers)\n"
			 "  --watch [SECONDS]  show it again at each event, and every SECONDS (default 2);\n"
			 "                     q or Ctrl-C ends it\n"
			 "\n"
			 "examples:\n"
			 "  gpuwmctl ls llama\n"
			 "  gpuwmctl ls --peers\n");
	CTL_IS(0, "retire", "m", "--help");
	SAYS("  --after TIME      how long the holders have until then");
	CTL_IS(2, "help", "swap", "--all");
	CTL_IS(0, "--help");
	for (const char *line = output; *line; line += strcspn(line, "\n") + 1)
		cr_expect_leq(strcspn(line, "\n"), 80, "%.*s", (int)strcspn(line, "\n"), line);
	CTL_IS(0, "help", "--all");
	for (const char *line = output; *line; line += strcspn(line, "\n") + 1)
		cr_expect_leq(strcspn(line, "\n"), 80, "%.*s", (int)strcspn(line, "\n"), line);
}

Test(ctl_verbs, explain_says_what_to_do)
{
	CTL_IS(0, "explain", "enospc");
	SAYS("ENOSPC: the device has no room for the bytes\n  usual cause: The budget");
	SAYS("\n  what to do:  ");
	CTL_IS(0, "explain", "4");
	SAYS("4: not found");
	CTL_IS(4, "explain", "77");
	SAYS("there is no error code and no exit status '77'\n");
	CTL_IS(4, "explain", "ENOSP");
	SAYS("there is no error code 'ENOSP'; did you mean ENOSPC?\n");
	CTL_IS(0, "-o", "json", "explain", "EIO");
	SAYS("{\"code\":\"EIO\",\"meaning\":\"reading failed");
	CTL_IS(0, "-o", "json", "explain");
	SAYS("{\"statuses\":[{\"code\":\"0\"");
}

GPUWMD_TEST_BY(ctl_verbs, version_tells_all_three, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	char line[100];

	snprintf(line, sizeof(line), "(pid %d)\n", (int)d->pid);
	CTL_IS(0, "version");
	SAYS("gpuwmctl          ");
	SAYS("\nlibgpuwm-client   ");
	SAYS(line);
	CTL_IS(0, "--socket", "/nonexistent/gpuwm.sock", "version");
	SAYS("gpuwmd            not reachable: ");
	CTL_IS(0, "-o", "json", "--socket", "/nonexistent/gpuwm.sock", "version");
	SAYS("\"gpuwmd\":null,\"error\":\"");
}

/* ---- logs ------------------------------------------------------------------ */

GPUWMD_TEST_BY(ctl_verbs, logs_says_where_the_log_goes, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	CTL_IS(4, "logs");
	SAYS("systemd does not run gpuwmd (pid ");
	SAYS("the log is no journal, but the file ");
	SAYS(d->log);
	SAYS("\n  tail -f ");
}

GPUWMD_TEST_BY(ctl_verbs, logs_knows_the_keeper, gpuwmd_start_kept(&(struct kept){}), gpuwmd_stop_empty)
{
	CTL_IS(4, "logs", "-f", "-n", "5");
	SAYS("gpuwm-keeper (pid ");
	SAYS(d->log);
}

/* Runs gpuwmctl where gpuwmd's pid is nobody, or another process. */
GPUWMD_TEST_BY(ctl_verbs, logs_are_where_gpuwmd_is, gpuwmd_start(NULL), gpuwmd_stop_empty)
{
	char command[300];
	int status;

	NEEDS_ROOT();
	SKIP_UNLESS(system("unshare --pid --fork --mount-proc true") == 0, "unshare is not permitted here");
	snprintf(
		command, sizeof(command),
		"unshare --pid --fork --mount-proc %s/bin/gpuwmctl logs 2>&1 | grep -q 'runs in another container'",
		build_path());
	status = system(command);
	cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%#x", status);
}

/* Without gpuwmd, the journal of gpuwmd.service is what there may be. */
Test(ctl_verbs, logs_without_a_gpuwmd)
{
	bool systemd = access("/run/systemd/system", F_OK) == 0;
	char *path = strdup(getenv("PATH"));

	setenv("PATH", "/nonexistent", 1);
	CTL_IS(systemd ? 1 : 3, "--socket", "/nonexistent/gpuwm.sock", "logs");
	setenv("PATH", path, 1);
	free(path);
	SAYS(systemd ? "can't run journalctl --unit gpuwmd.service: "
		     : "gpuwmd is not reachable, and systemd does not run here");
}
