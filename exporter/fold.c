#include "prom.h"

#include <stdlib.h>
#include <string.h>

void fold_add(struct fold *fold, const struct fold_row *row)
{
	if (fold->count == fold->room) {
		size_t room = fold->room ? 2 * fold->room : 64;
		struct fold_row *rows = reallocarray(fold->rows, room, sizeof(*rows));

		if (!rows) {
			fold->out_of_memory = true;
			return;
		}
		fold->rows = rows;
		fold->room = room;
	}
	fold->rows[fold->count++] = *row;
}

static int labels_compare(const void *a, const void *b)
{
	const struct fold_row *one = a, *other = b;
	int r = 0;

	for (size_t i = 0; r == 0 && i < FOLD_LABELS_MAX; i++)
		r = strcmp(one->labels[i] ? one->labels[i] : "", other->labels[i] ? other->labels[i] : "");
	return r;
}

static uint64_t sum_of(const struct fold_row *row)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < FOLD_VALUES_MAX; i++)
		sum += row->values[i];
	return sum;
}

/* The largest first; of equal ones the order of their labels, so that the same ones are told each time. */
static int sums_compare(const void *a, const void *b)
{
	uint64_t one = sum_of(a), other = sum_of(b);

	if (one != other)
		return one < other ? 1 : -1;
	return labels_compare(a, b);
}

static void merge(struct fold *fold)
{
	size_t kept = 0;

	qsort(fold->rows, fold->count, sizeof(*fold->rows), labels_compare);
	for (size_t i = 0; i < fold->count; i++) {
		if (kept > 0 && labels_compare(&fold->rows[kept - 1], &fold->rows[i]) == 0) {
			for (size_t v = 0; v < FOLD_VALUES_MAX; v++)
				fold->rows[kept - 1].values[v] += fold->rows[i].values[v];
		} else {
			fold->rows[kept++] = fold->rows[i];
		}
	}
	fold->count = kept;
}

void fold_end(struct fold *fold, size_t most, size_t named)
{
	if (fold->count == 0)
		return;
	merge(fold);
	if (fold->count <= most)
		return;
	qsort(fold->rows, fold->count, sizeof(*fold->rows), sums_compare);
	for (size_t i = most; i < fold->count; i++) {
		for (size_t l = 0; l < named; l++)
			fold->rows[i].labels[l] = FOLD_OTHER;
	}
	merge(fold);
}

struct fold *fold_clear(struct fold *fold)
{
	free(fold->rows);
	*fold = (struct fold){0};
	return NULL;
}

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
