/* The text format of Prometheus, version 0.0.4, and tables that are written in it. */
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

/* ---- tables of bounded size ----
 * Rows with the same labels become one row with the sum. If there are too many rows, the small ones become one
 * row, too. So a metric never has the same labels twice, and never more time series than its limit. */

#define FOLD_LABELS_MAX 3
#define FOLD_VALUES_MAX 12
/* The label of the row that has the sum of all rows left out. No name in gpuwm has a parenthesis. */
#define FOLD_OTHER "(other)"

struct fold_row {
	const char *labels[FOLD_LABELS_MAX]; /* NULL: none. The caller keeps the texts as long as the table. */
	uint64_t values[FOLD_VALUES_MAX];
};

struct fold {
	struct fold_row *rows;
	size_t count, room;
	bool out_of_memory;
};

void fold_add(struct fold *fold, const struct fold_row *row);

/* Sums rows with the same labels. If there are more than `most` rows then, it keeps those whose values
 * have the largest sums, and puts all others into rows in which the first `named` labels are
 * FOLD_OTHER, behind the others. The rows come in the order of their labels, the largest kept. */
void fold_end(struct fold *fold, size_t most, size_t named);

/* Returns NULL. */
struct fold *fold_clear(struct fold *fold);

/* One family of time series: the values of one column. */
struct fold_family {
	const char *name, *type, *help;
	bool in_us; /* the values are microseconds, told in seconds */
};

/* Writes a family for each of `count` columns. labels: the names of the rows' labels, FOLD_LABELS_MAX
 * or ended by NULL. Writes nothing for a table without rows. */
void fold_write(FILE *out, const struct fold *fold, const char *const labels[FOLD_LABELS_MAX],
		const struct fold_family *families, size_t count);

#endif
