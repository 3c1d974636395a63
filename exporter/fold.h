/* Tables of bounded size. Rows with the same labels become one row with the sum. If there are too many rows, the small ones
 * become one row, too. So a metric never has the same labels twice, and never more time series than its limit. */
#ifndef GPUWM_EXPORTER_FOLD_H
#define GPUWM_EXPORTER_FOLD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

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
