/* Results, one a line, in the columns of one table: what, figure, unit, goal, whether it is met. */
#ifndef GPUWM_BENCH_REPORT_H
#define GPUWM_BENCH_REPORT_H

#include <stdbool.h>

/* A line between results. */
void heading(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* No goal: beside others. */
void result(double value, const char *unit, const char *format, ...) __attribute__((format(printf, 3, 4)));
void result_at_most(double value, double goal, const char *unit, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
void result_at_least(double value, double goal, const char *unit, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* So far, in this program. */
unsigned results_missed(void);

#endif
