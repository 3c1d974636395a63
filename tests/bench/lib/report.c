#include "report.h"

#include <stdarg.h>
#include <stdio.h>

#define WHAT_WIDTH 72

static unsigned missed;

void heading(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
}

/* Few digits, but never none; what has no unit is counted. */
static void print_line(const char *format, va_list arguments, double value, const char *unit)
{
	char what[256];

	vsnprintf(what, sizeof what, format, arguments);
	printf("  %-*s %10.*f %-6s", WHAT_WIDTH, what,
	       !unit[0]       ? 0
	       : value < 10   ? 2
	       : value < 1000 ? 1
			      : 0,
	       value, unit);
}

static void print_goal(const char *than, double goal, bool met)
{
	printf("  goal %s %.4g: %s\n", than, goal, met ? "met" : "MISSED");
	missed += !met;
	fflush(stdout);
}

void result(double value, const char *unit, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(format, arguments, value, unit);
	va_end(arguments);
	printf("\n");
	fflush(stdout);
}

void result_at_most(double value, double goal, const char *unit, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(format, arguments, value, unit);
	va_end(arguments);
	print_goal("<=", goal, value <= goal);
}

void result_at_least(double value, double goal, const char *unit, const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	print_line(format, arguments, value, unit);
	va_end(arguments);
	print_goal(">=", goal, value >= goal);
}

unsigned results_missed(void)
{
	return missed;
}
