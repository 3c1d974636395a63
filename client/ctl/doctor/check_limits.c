/* limits: of this process, as a worker started here would have them. */
#include "groups.h"
#include "machine.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define FILES_MIN 1024 /* an attach may take 253 at once; an engine has some hundred of its own */
#define MEMLOCK_MIN (64u << 10) /* the default of old systems: io_uring before Linux 5.12 needs more */
#define TASKS_PERCENT 90

static void files_judge(struct findings *findings)
{
	struct rlimit limit;

	getrlimit(RLIMIT_NOFILE, &limit);
	if (limit.rlim_cur < FILES_MIN)
		finding(findings, VERDICT_WARNING, "RLIMIT_NOFILE", NULL,
			"ulimit -n 4096; in a unit: LimitNOFILE=4096",
			"%llu open files: an attach of a large version needs up to 253 for a moment",
			(unsigned long long)limit.rlim_cur);
	else
		finding(findings, VERDICT_OK, "RLIMIT_NOFILE", NULL, NULL, "%llu open files, at most %llu",
			(unsigned long long)limit.rlim_cur, (unsigned long long)limit.rlim_max);
}

static void memlock_judge(struct findings *findings)
{
	struct rlimit limit;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	if (limit.rlim_cur == RLIM_INFINITY)
		finding(findings, VERDICT_OK, "RLIMIT_MEMLOCK", NULL, NULL, "unlimited");
	else
		finding(findings, limit.rlim_cur < MEMLOCK_MIN ? VERDICT_WARNING : VERDICT_OK, "RLIMIT_MEMLOCK",
			NULL,
			limit.rlim_cur < MEMLOCK_MIN ? "ulimit -l unlimited, if an engine asks for it" : NULL,
			"%llu KiB; CUDA's driver pins memory without it",
			(unsigned long long)limit.rlim_cur / 1024);
}

static bool cgroup_number(const char *folder, const char *file, uint64_t *ret_number)
{
	char path[PLACE_BYTES], text[64];
	char *end;

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	if (!machine_read(path, text, sizeof(text)))
		return false;
	*ret_number = strtoull(text, &end, 10);
	return end != text; /* "max": none */
}

static void tasks_judge(struct findings *findings)
{
	uint64_t most, now = 0;
	char path[512] = "", folder[600];
	const bool has_cgroup = machine_line("/proc/self/cgroup", "0::", path, sizeof(path)); /* version 2 */

	snprintf(folder, sizeof(folder), "/sys/fs/cgroup%s", strcmp(path, "/") == 0 ? "" : path);
	if (!has_cgroup || !cgroup_number(folder, "pids.max", &most)) {
		finding(findings, VERDICT_OK, "pids", NULL, NULL, "this cgroup has no limit of tasks");
		return;
	}
	cgroup_number(folder, "pids.current", &now);
	finding(findings, now * 100 >= most * TASKS_PERCENT ? VERDICT_WARNING : VERDICT_OK, "pids", folder,
		now * 100 >= most * TASKS_PERCENT
			? "raise TasksMax= of the unit, or --pids-limit of the container"
			: NULL,
		"%" PRIu64 " of %" PRIu64 " tasks", now, most);
}

void check_limits(struct findings *findings, const char *socket)
{
	(void)socket;
	files_judge(findings);
	memlock_judge(findings);
	tasks_judge(findings);
}
