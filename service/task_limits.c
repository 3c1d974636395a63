#include "task_limits.h"

#include "../base/bytes.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

struct texts {
	char *end;
	size_t left;
};

__attribute__((format(printf, 2, 3))) static void texts_add(struct texts *texts, const char *format, ...)
{
	va_list arguments;
	int n;

	va_start(arguments, format);
	n = vsnprintf(texts->end, texts->left, format, arguments);
	va_end(arguments);
	if (n > 0 && (size_t)n < texts->left) {
		texts->end += n;
		texts->left -= (size_t)n;
	}
}

/* The line "0::/system.slice/gpuwmd.service" names the cgroup (of cgroups version 2). */
static void add_cgroup(struct texts *texts)
{
	FILE *file = fopen("/proc/self/cgroup", "re");
	char line[512], path[600] = "", most[32] = "";

	while (file && !path[0] && fgets(line, sizeof(line), file)) {
		line[strcspn(line, "\n")] = '\0';
		if (strncmp(line, "0::", 3) == 0)
			snprintf(path, sizeof(path), "/sys/fs/cgroup%s/pids.max", line + 3);
	}
	if (file)
		fclose(file);
	file = path[0] ? fopen(path, "re") : NULL;
	if (!file)
		return;
	if (fgets(most, sizeof(most), file) && strncmp(most, "max", 3) != 0)
		texts_add(texts, "%s is %.*s processes and threads; ", path, (int)strcspn(most, "\n"), most);
	fclose(file);
}

void task_limits_explain(char *ret_text, size_t size)
{
	struct texts texts = {ret_text, size};
	char bytes[BYTES_TEXT];
	struct rlimit limit;

	ret_text[0] = '\0';
	if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		texts_add(&texts, "RLIMIT_NPROC is %llu processes and threads of the user; ",
			  (unsigned long long)limit.rlim_cur);
	add_cgroup(&texts);
	if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
		texts_add(&texts, "RLIMIT_AS is %s of address space; ", bytes_format(limit.rlim_cur, bytes));
	texts_add(&texts,
		  "raise RLIMIT_NPROC (ulimit -u, LimitNPROC=), pids.max (TasksMax=, docker run --pids-limit) "
		  "or RLIMIT_AS (ulimit -v, LimitAS=)");
}
