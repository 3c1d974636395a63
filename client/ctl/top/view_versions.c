/* The versions, with the letters of their memory. */
#include "view.h"

#include "../answer.h"
#include "../table.h"
#include "../terminal.h"
#include "../line.h"

#include "../../../base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* A ready version that is not on its devices is not what a worker gets at once. */
static const char *version_state(const json_t *version, char text[CELL_TEXT])
{
	const char *tier = answer_text(version, "tier"), *state = answer_text(version, "state");

	if (*answer_text(version, "moving"))
		return "moving";
	if (!*tier || strcmp(state, "ready") != 0)
		return state;
	snprintf(text, CELL_TEXT, "on %s", tier);
	return text;
}

static void version_row(const struct top_view *view, const struct look *look, const json_t *version,
			struct picture *picture, const struct grid_column *columns)
{
	json_t *alias_names = answer_aliases(look->list, version);
	char letter[2] = {letters_of(&view->letters, answer_text(version, "version"))};
	char name[UTF8_SHOWN_MAX(300)], raw[600], aliases[200], text[CELL_TEXT], state[40], size[SHORT_TEXT],
		leases[24], pins[24], age[SHORT_TEXT];

	if (strcmp(answer_text(version, "state"), "failed") == 0)
		letter[0] = ' ';
	snprintf(raw, sizeof(raw), "%s@%s", answer_text(version, "model"), answer_text(version, "tag"));
	utf8_show(raw, name, sizeof(name));
	answer_join(alias_names, aliases, sizeof(aliases));
	json_decref(alias_names);
	snprintf(state, sizeof(state), "%s%.30s", json_object_get(version, "tainted") ? "TAINTED " : "",
		 version_state(version, text));
	snprintf(leases, sizeof(leases), "%llu", (unsigned long long)answer_number(version, "leases"));
	snprintf(pins, sizeof(pins), "%zu", json_array_size(json_object_get(version, "pins")));
	grid_row(picture, columns, json_object_get(version, "tainted") ? STYLE_BAD : state_style(state),
		 (const char *[]){letter, name, aliases, state,
				  size_text(answer_number(version, "bytes"), size), leases, pins,
				  age_text(answer_number(version, "created_ms"), age)});
}

void view_versions(const struct top_view *view, const struct look *look, struct picture *picture)
{
	static const struct grid_column columns[] = {
		{" ", 1, false, 0},     {"VERSION", 0, false, 0}, {"ALIASES", 12, false, 66},
		{"STATE", 9, false, 0}, {"SIZE", 9, true, 0},     {"LEASES", 6, true, 0},
		{"PINS", 4, true, 72},  {"AGE", 4, true, 0},      {0},
	};
	const json_t *versions = json_object_get(look->list, "versions"), *version;
	struct view_row *rows = calloc(json_array_size(versions) + 1, sizeof(*rows));
	size_t count = 0, i;
	char title[80];

	json_array_foreach(versions, i, version) {
		const char *model = answer_text(version, "model"), *tag = answer_text(version, "tag");
		const double created = (double)answer_number(version, "created_ms") / 1000;

		if (rows && (view_shows(view, model) || view_shows(view, tag)))
			rows[count++] = (struct view_row){model, (double)answer_number(version, "bytes"),
							  (double)answer_number(version, "leases"),
							  (double)time(NULL) - created, version};
	}
	snprintf(title, sizeof(title), "VERSIONS %zu", count);
	picture_section(picture, title);
	grid_heads(picture, columns);
	if (count > 0)
		view_rows_sort(view, rows, count);
	for (i = 0; i < count; i++)
		version_row(view, look, rows[i].json, picture, columns);
	free(rows);
}
