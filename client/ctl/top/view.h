/* What gpuwmd tells, what the user chose to see of it, and the picture of that. */
#ifndef GPUWM_CTL_TOP_VIEW_H
#define GPUWM_CTL_TOP_VIEW_H

#include <gpuwm/client.h>

#include "../terminal.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- what gpuwmd tells at one moment, and the connection that asks ---- */

#define LOOK_SAMPLES 10 /* answers of `metrics`, one a second: figures are of the last ten seconds */

struct look {
	const char *socket; /* of --socket, or NULL */
	struct gpuwm_client *client; /* NULL: not connected */
	struct gpuwm_events *events; /* NULL: not subscribed */
	/* The last answers. clients, jobs, metrics: NULL if gpuwmd does not tell this user, or not at all. */
	json_t *status, *list, *clients, *jobs, *metrics;
	struct {
		json_t *metrics;
		uint64_t at_ms;
	} samples[LOOK_SAMPLES]; /* the oldest first */
	size_t sample_count;
	char problem[512]; /* why the answers are old; "": they are not */
};

/* Asks for everything, and connects first if that is needed. Returns 0, or the error that look->problem tells; the answers are the
 * last ones then. Waits for no gpuwmd that went away. */
int look_take(struct look *look);
/* Reads the events that have come. Returns whether there was one. */
bool look_events(struct look *look);
/* The descriptor of the events; -1: there is none. */
int look_fd(const struct look *look);
void look_end(struct look *look);

/* ---- what happened between two answers of `metrics` ---- */

struct rates {
	double attaches, requests, refused; /* a second */
	double p50_us, p99_us; /* of attaches; negative: there were none */
};

/* before NULL: since gpuwmd's start, which was `seconds` ago. A `before` of another gpuwmd must not be passed. */
void rates_of(const json_t *before, const json_t *now, double seconds, struct rates *ret);
/* Whether both are of one gpuwmd. */
bool rates_fit(const json_t *before, const json_t *now);

/* ---- the picture: lines, which are drawn on a terminal or printed ---- */

struct picture {
	unsigned columns; /* no line is wider */
	char **lines;
	size_t count;
	/* Lines that say where a section begins, for the key that goes from one to the next. */
	size_t sections[8], section_count;
};

void picture_clear(struct picture *picture);
/* Adds a line, of UTF-8 as utf8_show makes it. What has no room is cut. If memory is short, the line is left out. */
void picture_line(struct picture *picture, enum style style, const char *format, ...)
	__attribute__((format(printf, 3, 4)));
/* Adds a line with styles in it, which must fit. */
void picture_styled(struct picture *picture, const char *text);
/* Adds an empty line and a heading, at which a section begins. */
void picture_section(struct picture *picture, const char *title);

/* ---- rows of a table ---- */

/* A column: its head and width. Width 0: what the others leave, shared by all such columns. */
struct grid_column {
	const char *head; /* NULL ends the columns */
	unsigned width;
	bool right;
	unsigned from; /* narrower pictures leave the column out; 0: it is always there */
};

#define GRID_COLUMNS_MAX 10
/* Adds the row of heads, or a row of cells in the columns' order. A cell that is too long loses its middle. */
void grid_heads(struct picture *picture, const struct grid_column *columns);
void grid_row(struct picture *picture, const struct grid_column *columns, enum style style,
	      const char *const *cells);

/* ---- letters: one for each version, which stands for its memory in the bars ----
 * A version keeps its letter for as long as it is there. */

#define LETTERS 52 /* a to z, A to Z; further versions have LETTER_OTHER */
#define LETTER_OTHER '#'

struct letters {
	char ids[LETTERS][33]; /* "": the letter is free */
};

/* Gives up the letters of versions that are gone from the list, and gives letters to new ones. */
void letters_update(struct letters *letters, const json_t *list);
char letters_of(const struct letters *letters, const char *id);

/* ---- what the user chose to see ---- */

enum view_sort { SORT_SIZE, SORT_NAME, SORT_LEASES, SORT_AGE, SORTS };
extern const char *const view_sort_names[SORTS];

#define FILTER_BYTES 64

struct top_view {
	enum view_sort sort;
	bool reverse;
	bool help; /* the keys instead of the tables */
	bool typing; /* the keys go to the filter */
	char filter[FILTER_BYTES]; /* rows without this text are left out; "": none are */
	size_t scroll; /* lines of the tables above the first one that is shown */
	bool live; /* figures are of the last seconds; false: since gpuwmd's start */
	struct letters letters;
};

/* Whether the text has the filter in it, in whatever case. */
bool view_shows(const struct top_view *view, const char *text);

/* The parts of the picture, each in a file of its own (view_*.c). */
void view_head(const struct top_view *view, const struct look *look, struct picture *picture);
void view_devices(const struct top_view *view, const struct look *look, struct picture *picture);
void view_jobs(const struct top_view *view, const struct look *look, struct picture *picture);
void view_versions(const struct top_view *view, const struct look *look, struct picture *picture);
void view_workers(const struct top_view *view, const struct look *look, struct picture *picture);
void view_help(struct picture *picture);

/* A bar of `width` columns, which is filled up to the share. */
#define BAR_BYTES 64
const char *view_bar(double share, unsigned width, char ret_bar[BAR_BYTES]);

/* ---- rows ---- */

/* A row before it is sorted. */
struct view_row {
	const char *name;
	double size, leases, age; /* age: seconds */
	const json_t *json;
};
void view_rows_sort(const struct top_view *view, struct view_row *rows, size_t count);

/* ---- names of users, each asked for once: a directory service may take its time ---- */

/* The user's name, or the number if there is none. Valid until the next call. */
const char *users_name(unsigned uid);

#endif
