/* stop: the end of this user's gpuwmd. */
#include "../commands.h"

#include "own_gpuwmd.h"

#include "../line.h"
#include "../runner.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

/* gpuwm-keeper gives gpuwmd eight seconds, and then closes the memory: 57 ms a GiB of host memory, so this is enough for 1.5 TiB. */
#define END_MS 100000

/* 0, or a negative errno: -ESRCH if the process is gone already. */
static int process_end(pid_t pid)
{
	int pidfd = (int)syscall(SYS_pidfd_open, pid, 0), r;
	struct pollfd end = {.fd = pidfd, .events = POLLIN};

	if (pidfd < 0)
		return -errno;
	r = syscall(SYS_pidfd_send_signal, pidfd, SIGTERM, NULL, 0) < 0 ? -errno : 0;
	if (r == 0)
		r = poll(&end, 1, END_MS) == 1 ? 0 : -ETIMEDOUT;
	close(pidfd);
	return r;
}

static int stopped_show(const json_t *result)
{
	const unsigned long long keeper = answer_number(result, "keeper");
	const unsigned long long versions = answer_number(result, "versions"),
				 leases = answer_number(result, "leases");
	char size[SHORT_TEXT];

	if (keeper == 0)
		say("no gpuwmd of this user runs: nobody listens at %s", answer_text(result, "socket"));
	else if (!json_object_get(result, "versions"))
		say("gpuwm-keeper (pid %llu) has ended, and gpuwmd with it: all weights are let go", keeper);
	else
		say("gpuwm-keeper (pid %llu) has ended, and gpuwmd with it; let go: %llu version%s with %s",
		    keeper, versions, versions == 1 ? "" : "s",
		    size_text(answer_number(result, "bytes"), size));
	if (leases > 0)
		say("processes with %llu lease%s keep what they have mapped until they unmap it", leases,
		    leases == 1 ? "" : "s");
	return EXIT_DONE;
}

/* Without a keeper there is nothing to end. */
static int keeper_stop(const struct own_gpuwmd *own)
{
	static const struct view view = {stopped_show, NULL, NULL, NULL};
	int r = own->keeper ? process_end(own->keeper) : 0;

	if (r == -ETIMEDOUT)
		return exit_with(EXIT_TIMEOUT, "see gpuwmctl logs",
				 "gpuwm-keeper (pid %d) did not end within %d s", (int)own->keeper,
				 END_MS / 1000);
	if (r < 0 && r != -ESRCH)
		return exit_with(EXIT_FAILED, NULL, "gpuwm-keeper (pid %d) can't be ended: %s",
				 (int)own->keeper, strerror(-r));
	return result_show(json_pack("{s:s, s:i, s:O*, s:O*, s:O*}", "socket", own->socket, "keeper",
				     (int)own->keeper, "versions", json_object_get(own->status, "versions"),
				     "bytes", json_object_get(own->status, "bytes"), "leases",
				     json_object_get(own->status, "leases")),
			   &view);
}

static int stop_run(struct gpuwm_client *none, const struct arguments *arguments)
{
	char remedy[512] = "end it where it was started";
	struct own_gpuwmd own;
	struct runner runner;
	int code = own_gpuwmd_find(arguments, &own);

	(void)none;
	if (code != EXIT_DONE)
		return code;
	if (own.status && !own.keeper) {
		/* A gpuwmd that gpuwmctl did not start ends where it was started: its weights may be of more users than this one. */
		runner = own_gpuwmd_runner(&own);
		if (*runner.unit)
			snprintf(remedy, sizeof(remedy), "systemctl %sstop %s ends it",
				 runner.user ? "--user " : "", runner.unit);
		code = own_gpuwmd_foreign_tell(&own, remedy);
	} else {
		code = keeper_stop(&own);
	}
	own_gpuwmd_clear(&own);
	return code;
}

const struct command command_stop = {
	.name = "stop",
	.summary = "end this user's gpuwmd, which lets all weights go",
	.about = "Workers keep what they have mapped until they unmap it.",
	.example = "gpuwmctl stop",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = stop_run,
};
