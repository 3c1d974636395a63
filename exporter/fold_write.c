#include "fold_write.h"

#include "prom.h"

static void row_write(FILE *out, const struct fold_row *row, const char *const labels[FOLD_LABELS_MAX],
		      const struct fold_family *family, uint64_t value)
{
	/* A label without a name ends the list. */
	const char *one = labels[0], *two = one ? labels[1] : NULL, *three = two ? labels[2] : NULL;

	if (family->in_us)
		prom_us(out, family->name, value, one, row->labels[0], two, row->labels[1], three,
			row->labels[2], PROM_END);
	else
		prom_u64(out, family->name, value, one, row->labels[0], two, row->labels[1], three,
			 row->labels[2], PROM_END);
}

void fold_write(FILE *out, const struct fold *fold, const char *const labels[FOLD_LABELS_MAX],
		const struct fold_family *families, size_t count)
{
	for (size_t f = 0; f < count && fold->count > 0; f++) {
		prom_family(out, families[f].name, families[f].type, families[f].help);
		for (size_t i = 0; i < fold->count; i++)
			row_write(out, &fold->rows[i], labels, &families[f], fold->rows[i].values[f]);
	}
}
