/* What the user chose to see, and the pictures of it. */
#ifndef GPUWM_CTL_TOP_VIEW_H
#define GPUWM_CTL_TOP_VIEW_H

#include "letters.h"
#include "look.h"
#include "picture.h"

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

#endif
