/* A folded table as families of time series. */
#ifndef GPUWM_EXPORTER_FOLD_WRITE_H
#define GPUWM_EXPORTER_FOLD_WRITE_H

#include "fold.h"

#include <stdio.h>

/* One family: the values of one column. */
struct fold_family {
	const char *name, *type, *help;
	bool in_us; /* the values are microseconds, told in seconds */
};

/* Writes a family for each of `count` columns. labels: the names of the rows' labels, FOLD_LABELS_MAX
 * or ended by NULL. Writes nothing for a table without rows. */
void fold_write(FILE *out, const struct fold *fold, const char *const labels[FOLD_LABELS_MAX],
		const struct fold_family *families, size_t count);

#endif
