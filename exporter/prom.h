/* The text format of Prometheus, version 0.0.4. */
#ifndef GPUWM_EXPORTER_PROM_H
#define GPUWM_EXPORTER_PROM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define PROM_GAUGE "gauge"
#define PROM_COUNTER "counter"
#define PROM_HISTOGRAM "histogram"

/* Begins a family of time series. All of its values follow before the next family begins. */
void prom_family(FILE *out, const char *name, const char *type, const char *help);

/* Ends a list of labels. */
#define PROM_END ((const char *)NULL)

/* Writes a value. After it come pairs of a label's name and its value, then PROM_END. A label whose name is NULL ends the
 * list too. */
void prom_u64(FILE *out, const char *name, uint64_t value, ...) __attribute__((sentinel));
/* The same for times, in seconds with microseconds. */
void prom_us(FILE *out, const char *name, uint64_t us, ...) __attribute__((sentinel));

/* A family that has one value and no labels. */
void prom_single(FILE *out, const char *name, const char *type, const char *help, uint64_t value);
void prom_single_us(FILE *out, const char *name, const char *type, const char *help, uint64_t us);

/* Writes a label's value with what has to be escaped: backslashes, quotes and line ends. */
void prom_escape(FILE *out, const char *text);

/* Writes somebody's text as a comment on one line. */
void prom_comment(FILE *out, const char *text);

/* Returns whether the text may be a part of a metric's name: small letters, digits and '_'. */
bool prom_is_name(const char *text);

#endif
