#include "view.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *const view_sort_names[SORTS] = {"size", "name", "leases", "age"};

bool view_shows(const struct top_view *view, const char *text)
{
	return !view->filter[0] || strcasestr(text, view->filter);
}

const char *view_bar(double share, unsigned width, char ret_bar[BAR_BYTES])
{
	unsigned filled;

	if (width > BAR_BYTES - 1)
		width = BAR_BYTES - 1;
	share = share < 0 ? 0 : share > 1 ? 1 : share;
	filled = (unsigned)(share * width + 0.5);
	memset(ret_bar, '.', width);
	memset(ret_bar, '#', filled);
	ret_bar[width] = '\0';
	return ret_bar;
}

/* ---- sorting ---------------------------------------------------------------- */

/* Names go up, figures go down, as people look for the largest. */
static int rows_compare(const void *a, const void *b, void *user_data)
{
	const struct view_row *one = a, *other = b;
	const struct top_view *view = user_data;
	double difference = 0;
	int order;

	switch (view->sort) {
	case SORT_SIZE:
		difference = other->size - one->size;
		break;
	case SORT_LEASES:
		difference = other->leases - one->leases;
		break;
	case SORT_AGE:
		difference = other->age - one->age;
		break;
	default:
		break;
	}
	order = difference > 0 ? 1 : difference < 0 ? -1 : strcmp(one->name, other->name);
	return view->reverse ? -order : order;
}

void view_rows_sort(const struct top_view *view, struct view_row *rows, size_t count)
{
	qsort_r(rows, count, sizeof(*rows), rows_compare, (void *)view);
}

/* ---- help -------------------------------------------------------------------- */

void view_help(struct picture *picture)
{
	static const char *const lines[] = {
		"q            quit",
		"s n l a      sort by size, name, leases, age",
		"r            reverse the order",
		"/            show only rows with a text; Enter keeps it, Escape removes it",
		"Up Down      scroll the tables by a line; also k and j",
		"PgUp PgDn    scroll by a page; Home and End go to the ends",
		"Tab          go to the next table",
		"h ?          this help; any key closes it",
		"",
		"In a device's bar each letter is the memory of the version with that letter.",
		"+ contexts of loaders   ~ memory of freed versions that is still mapped",
		"= shared by versions, regions, and what is being loaded",
		"# copies by CUDA IPC    . free of the budget",
		"",
		"Figures of attaches are of the last ten seconds. A picture redraws when",
		"something happens, and once a second.",
	};

	picture_section(picture, "KEYS");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		picture_line(picture, STYLE_PLAIN, "  %s", lines[i]);
}
