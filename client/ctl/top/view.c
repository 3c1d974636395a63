#include "view.h"

#include "../answer.h"

#include <pwd.h>
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
		"% room of workers: what they take besides versions",
		"# copies by CUDA IPC    . free of the budget",
		"",
		"Figures of attaches are of the last ten seconds. A picture redraws when",
		"something happens, and once a second.",
	};

	picture_section(picture, "KEYS");
	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++)
		picture_line(picture, STYLE_PLAIN, "  %s", lines[i]);
}

/* ---- letters -------------------------------------------------------------- */

static int position_of(const struct letters *letters, const char *id)
{
	for (int i = 0; i < LETTERS; i++)
		if (strcmp(letters->ids[i], id) == 0)
			return i;
	return -1;
}

void letters_update(struct letters *letters, const json_t *list)
{
	const json_t *version;
	size_t i;

	for (i = 0; i < LETTERS; i++)
		if (letters->ids[i][0] && !answer_version(list, letters->ids[i]))
			letters->ids[i][0] = '\0';
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		const char *id = answer_text(version, "version");
		int position = position_of(letters, id) < 0 ? position_of(letters, "") : -1;

		/* A failed version has no memory. */
		if (position >= 0 && strcmp(answer_text(version, "state"), "failed") != 0)
			snprintf(letters->ids[position], sizeof(letters->ids[position]), "%s", id);
	}
}

char letters_of(const struct letters *letters, const char *id)
{
	int position = position_of(letters, id);

	if (position < 0)
		return LETTER_OTHER;
	return (char)(position < 26 ? 'a' + position : 'A' + position - 26);
}

/* ---- users ---------------------------------------------------------------- */

#define USERS_MAX 64 /* on one machine; beyond them each is asked for again */

const char *users_name(unsigned uid)
{
	static struct {
		unsigned uid;
		char name[33];
	} known[USERS_MAX];
	static unsigned count, next;
	const struct passwd *entry;

	for (unsigned i = 0; i < count; i++)
		if (known[i].uid == uid)
			return known[i].name;
	/* cppcheck-suppress getpwuidCalled ; there is one thread that asks */
	entry = getpwuid(uid);
	next = count < USERS_MAX ? count++ : (next + 1) % USERS_MAX;
	known[next].uid = uid;
	if (entry)
		snprintf(known[next].name, sizeof(known[next].name), "%s", entry->pw_name);
	else
		snprintf(known[next].name, sizeof(known[next].name), "%u", uid);
	return known[next].name;
}
