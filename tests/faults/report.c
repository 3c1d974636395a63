#include "report.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define REPORT_BYTES 8192
#define LOG_LINES 8

/* Written at once, since many processes write into one file. */
struct report {
	char text[REPORT_BYTES];
	size_t used;
};

static void put_list(struct report *report, const char *format, va_list list)
{
	size_t room = sizeof report->text - report->used;
	int length = vsnprintf(report->text + report->used, room, format, list);

	report->used += length < 0 ? 0 : (size_t)length < room ? (size_t)length : room - 1;
}

__attribute__((format(printf, 2, 3))) static void put(struct report *report, const char *format, ...)
{
	va_list list;

	va_start(list, format);
	put_list(report, format, list);
	va_end(list);
}

static void report_write(int file, const struct report *report)
{
	if (write(file, report->text, report->used) < 0)
		perror("the report of failures");
}

void report_line(int file, const char *format, ...)
{
	struct report report = {.used = 0};
	va_list list;

	va_start(list, format);
	put_list(&report, format, list);
	va_end(list);
	put(&report, "\n");
	report_write(file, &report);
}

/* Programs of ours by function and line, libraries by their functions. */
static void put_frame(struct report *report, const char *frame)
{
	const char *plus = strchr(frame, '+');
	char command[768], line[256] = "";
	FILE *pipe = NULL;

	if (plus) {
		snprintf(command, sizeof command,
			 "addr2line -f -s -e %s/bin/%.*s %s 2>/dev/null | paste -s -d ' '",
			 getenv("GPUWM_BUILD"), (int)(plus - frame), frame, plus + 1);
		pipe = popen(command, "re");
	}
	if (pipe && fgets(line, sizeof line, pipe))
		line[strcspn(line, "\n")] = '\0';
	if (pipe)
		pclose(pipe);
	put(report, "    %s\n", line[0] && line[0] != '?' ? line : frame);
}

static void put_trace(struct report *report, const struct trace *where)
{
	for (int i = 0; i < FRAMES_MAX && where->frames[i][0]; i++) {
		if (!strstr(where->frames[i], "fail-call.so"))
			put_frame(report, where->frames[i]);
	}
}

/* The beginning of the last lines. */
static const char *tail(const char *text)
{
	const char *from = text + strlen(text);

	for (int lines = 0; from > text; from--) {
		if (from[-1] == '\n' && lines++ == LOG_LINES)
			break;
	}
	return from;
}

static void put_log(struct report *report, const struct stack *s)
{
	char *said = stack_said(s);
	const char *line = said ? tail(said) : "";

	while (*line) {
		size_t length = strcspn(line, "\n");

		put(report, "  | %.*s\n", (int)length, line);
		line += length + (line[length] == '\n');
	}
	free(said);
}

void report_round(int file, const struct round *r)
{
	struct report report = {.used = 0};

	put(&report, "FAIL %s: ", r->scenario->name);
	if (r->fault)
		put(&report, "%s, %s of %s %u: ", program_name(r->program), strerrorname_np(r->fault->error),
		    call_name(r->fault->call), r->number);
	put(&report, "%s\n", r->why);
	if (r->fault && r->stack->control->struck)
		put_trace(&report, &r->stack->control->where);
	if (r->crash) {
		put(&report, "  it ended in\n");
		put_trace(&report, r->crash);
	}
	put_log(&report, r->stack);
	report_write(file, &report);
}
