/* Each group runs in a child of its own, which tells its findings as JSON through a pipe. */
#include "groups.h"

#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define QUICK_MS 10000 /* what takes milliseconds where nothing hangs */

const struct check_group groups[] = {
	{"machine", QUICK_MS, check_machine},
	{"kernel", QUICK_MS, check_kernel},
	{"driver", PROBE_MS + QUICK_MS, check_driver},
	{"device nodes", QUICK_MS, check_nodes},
	{"users", QUICK_MS, check_users},
	/* Before what connects: it says why nobody answers. systemctl may hang twice. */
	{"service", 2 * QUICK_MS, check_service},
	{"sockets", QUICK_MS, check_sockets},
	{"models", QUICK_MS, check_roots},
	{"limits", QUICK_MS, check_limits},
	{"container", QUICK_MS, check_container},
	{"room", QUICK_MS, check_room},
	{"descriptions", QUICK_MS, check_descriptions},
	{"leftovers", QUICK_MS, check_leftovers},
	{"peers", 2 * QUICK_MS, check_peers},
	{"python", QUICK_MS, check_python},
};
const size_t group_count = sizeof(groups) / sizeof(groups[0]);

/* Limits a child that writes without end. */
#define ANSWER_BYTES (1 << 20)
#define SPARE_MS 500

_Noreturn static void group_run_child(const struct check_group *group, const char *socket, int to)
{
	struct findings findings = {json_array(), json_array()};
	json_t *answer;
	FILE *file = fdopen(to, "w");

	setpgid(0, 0); /* its end is the end of all that it started */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	group->run(&findings, socket);
	answer = json_pack("{s:o, s:o}", "findings", findings.list, "devices", findings.devices);
	if (!file || !answer || json_dumpf(answer, file, JSON_COMPACT) < 0 || fclose(file) != 0)
		_exit(1);
	json_decref(answer);
	_exit(0);
}

/* Why there is no answer. */
static void group_tell_silence(struct findings *findings, const struct check_group *group, int error,
			       int status)
{
	const char *remedy = "see the kernel's log (dmesg) for what hangs, and report this";

	*findings = (struct findings){json_array(), json_array()};
	if (error == -ETIMEDOUT)
		finding(findings, VERDICT_FAILED, "answer", NULL, remedy,
			"the checks of this group did not end within %lld s, and were ended",
			(long long)group->limit_ms / 1000);
	else if (WIFSIGNALED(status))
		finding(findings, VERDICT_FAILED, "answer", NULL, remedy,
			"the checks of this group ended by signal %d (%s)", WTERMSIG(status),
			strsignal(WTERMSIG(status)));
	else
		finding(findings, VERDICT_FAILED, "answer", NULL, remedy,
			"the checks of this group gave no answer: %s", strerror(error ? -error : EPROTO));
}

struct findings group_run(const struct check_group *group, const char *socket)
{
	struct findings findings;
	json_t *answer;
	char *text = calloc(1, ANSWER_BYTES);
	/* Programs that it starts end before it. */
	const int64_t limit_ms = program_limit(group->limit_ms - SPARE_MS) + SPARE_MS;
	int pipes[2], status = 0, error = text ? 0 : -ENOMEM;
	pid_t pid;

	fflush(NULL);
	if (error == 0 && pipe2(pipes, O_CLOEXEC) < 0)
		error = -errno;
	if (error == 0) {
		pid = fork();
		if (pid == 0) {
			close(pipes[0]);
			group_run_child(group, socket, pipes[1]);
		}
		close(pipes[1]);
		error = pid < 0 ? -errno : program_read(pipes[0], limit_ms, text, ANSWER_BYTES);
		close(pipes[0]);
		if (pid > 0)
			program_end(pid, error == -ETIMEDOUT, &status);
	}
	answer = error == 0 ? json_loads(text, 0, NULL) : NULL;
	findings = (struct findings){json_incref(json_object_get(answer, "findings")),
				     json_incref(json_object_get(answer, "devices"))};
	json_decref(answer);
	free(text);
	if (!findings.list)
		group_tell_silence(&findings, group, error, status);
	return findings;
}
