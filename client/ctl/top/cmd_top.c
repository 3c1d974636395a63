/* top: a live picture of what gpuwmd holds, who uses it, and what goes on. */
#include "../commands.h"

#include "../answer.h"
#include "../exit.h"
#include "../terminal.h"
#include "../line.h"
#include "view.h"

#include "../../../base/clock.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <poll.h>
#include <unistd.h>

static bool once;
static const struct option_row top_options[] = {
	{"once", "print one picture as text, and end", .into = &once, .letter = 'b'},
	{0},
};

#define REFRESH_MS 1000
#define BUSY_MS 250 /* between two looks, however many events come: a look reads all lists */
#define ESCAPE_MS 50 /* the rest of a key's sequence comes at once, also over a slow line */

struct top {
	struct look look;
	struct top_view view;
	struct keys keys;
	size_t body_lines, sections[8], section_count; /* of the last picture */
	size_t page; /* lines of the tables that had room */
	bool quit;
};

/* ---- pictures ---------------------------------------------------------------- */

static void head_make(struct top *top, struct picture *picture)
{
	view_head(&top->view, &top->look, picture);
	if (top->look.status)
		view_devices(&top->view, &top->look, picture);
}

static void body_make(struct top *top, struct picture *picture)
{
	if (top->view.help) {
		view_help(picture);
		return;
	}
	if (!top->look.status)
		return;
	view_jobs(&top->view, &top->look, picture);
	view_versions(&top->view, &top->look, picture);
	view_workers(&top->view, &top->look, picture);
}

static void foot_make(const struct top_view *view, struct picture *picture)
{
	if (view->typing)
		picture_line(picture, STYLE_DIM, "filter: %s_  Enter keeps it, Escape removes it",
			     view->filter);
	else
		picture_line(picture, STYLE_DIM, "q quit  h help  / filter%s%s  sort s n l a: %s%s",
			     *view->filter ? ": " : "", view->filter, view_sort_names[view->sort],
			     view->reverse ? ", reversed" : "");
}

/* One line after another. Without a terminal all lines of the body are shown. */
static void picture_print_part(FILE *file, const struct picture *picture, size_t from, size_t count)
{
	for (size_t i = from; i < picture->count && i < from + count; i++)
		fprintf(file, "%s\n", picture->lines[i]);
}

static void top_draw(struct top *top)
{
	const size_t rows = terminal_rows(STDOUT_FILENO);
	struct picture head = {.columns = terminal_columns(STDOUT_FILENO)}, body = {.columns = head.columns},
		       foot = {.columns = head.columns};
	struct top_view *view = &top->view;
	char *text = NULL;
	size_t size, room;
	FILE *file = open_memstream(&text, &size);

	if (!file)
		return;
	letters_update(&view->letters, top->look.list);
	head_make(top, &head);
	body_make(top, &body);
	foot_make(view, &foot);
	room = rows > head.count + 1 ? rows - head.count - 1 : 0;
	top->page = room;
	top->body_lines = body.count;
	top->section_count = body.section_count;
	memcpy(top->sections, body.sections, sizeof(top->sections));
	if (view->scroll + room > body.count)
		view->scroll = body.count > room ? body.count - room : 0;
	picture_print_part(file, &head, 0, rows > 1 ? rows - 1 : 0);
	picture_print_part(file, &body, view->scroll, room);
	for (size_t i = body.count - view->scroll; i < room; i++)
		fputc('\n', file);
	picture_print_part(file, &foot, 0, 1);
	fclose(file);
	screen_draw(text);
	free(text);
	picture_clear(&head);
	picture_clear(&body);
	picture_clear(&foot);
}

/* ---- keys -------------------------------------------------------------------- */

static void scroll_by(struct top *top, long lines)
{
	long to = (long)top->view.scroll + lines;

	top->view.scroll = to < 0 ? 0 : (size_t)to; /* top_draw limits it */
}

static void scroll_to_next_section(struct top *top)
{
	for (size_t i = 0; i < top->section_count; i++) {
		if (top->sections[i] > top->view.scroll && top->sections[i] < top->body_lines) {
			size_t before = top->view.scroll;

			top->view.scroll = top->sections[i];
			if (before + top->page < top->body_lines)
				return;
			break;
		}
	}
	top->view.scroll = 0;
}

static void type_key(struct top_view *view, int key)
{
	const size_t length = strlen(view->filter);

	if (key == KEY_ESCAPE)
		view->filter[0] = '\0';
	if (key == KEY_ESCAPE || key == '\n' || key == '\r')
		view->typing = false;
	else if (key == KEY_BACKSPACE && length > 0)
		view->filter[length - 1] = '\0';
	else if (key < KEY_BACKSPACE && isprint(key) && length + 1 < FILTER_BYTES)
		strcat(view->filter, (const char[]){(char)key, '\0'});
	view->scroll = 0;
}

static bool sort_key(struct top_view *view, int key)
{
	static const char keys[SORTS] = {
		[SORT_SIZE] = 's', [SORT_NAME] = 'n', [SORT_LEASES] = 'l', [SORT_AGE] = 'a'};
	const char *at = key > 0 && key < KEY_BACKSPACE ? memchr(keys, key, SORTS) : NULL;

	if (!at)
		return false;
	view->sort = (enum view_sort)(at - keys);
	view->scroll = 0;
	return true;
}

static void scroll_key(struct top *top, int key)
{
	switch (key) {
	case KEY_UP:
	case 'k':
		return scroll_by(top, -1);
	case KEY_DOWN:
	case 'j':
		return scroll_by(top, 1);
	case KEY_PAGE_UP:
		return scroll_by(top, -(long)top->page);
	case KEY_PAGE_DOWN:
	case ' ':
		return scroll_by(top, (long)top->page);
	case KEY_HOME:
	case 'g':
		return scroll_by(top, -(long)top->body_lines);
	case KEY_END:
	case 'G':
		return scroll_by(top, (long)top->body_lines);
	case '\t':
		return scroll_to_next_section(top);
	default:
		return;
	}
}

static void top_press(struct top *top, int key)
{
	struct top_view *view = &top->view;

	if (view->typing) {
		type_key(view, key);
	} else if (view->help) {
		view->help = false;
		view->scroll = 0;
	} else if (key == 'q' || key == 'Q') {
		top->quit = true;
	} else if (key == 'h' || key == '?') {
		view->help = true;
		view->scroll = 0;
	} else if (key == 'r') {
		view->reverse = !view->reverse;
	} else if (key == '/') {
		view->typing = true;
	} else if (key == KEY_ESCAPE) {
		view->filter[0] = '\0';
	} else if (!sort_key(view, key)) {
		scroll_key(top, key);
	}
}

/* ---- the loop ------------------------------------------------------------------ */

/* Waits until it is time to look again. Keys redraw what is known. */
static void wait_and_press(struct top *top)
{
	const uint64_t looked = clock_steady_ms();
	bool news = false;

	while (!top->quit) {
		const int64_t gone = clock_steady_ms() - looked, left = (news ? BUSY_MS : REFRESH_MS) - gone;
		const bool open = keys_open(&top->keys);
		int got, key = KEY_NONE;

		if (left <= 0)
			return;
		got = screen_wait(news ? -1 : look_fd(&top->look), POLLIN, open ? ESCAPE_MS : left);
		if (got == SCREEN_READY)
			news = look_events(&top->look) || news;
		else if (got > 0)
			key = keys_take(&top->keys, got);
		else if (got == SCREEN_TIME && open)
			key = keys_end(&top->keys);
		if (key != KEY_NONE)
			top_press(top, key);
		if (key != KEY_NONE || got == SCREEN_RESIZED)
			top_draw(top);
	}
}

static int top_live(struct top *top)
{
	top->view.live = true;
	if (look_take(&top->look) < 0)
		return exit_with_connect_error(); /* gpuwmd was never there */
	screen_begin();
	while (!top->quit) {
		top_draw(top);
		wait_and_press(top);
		if (!top->quit)
			look_take(&top->look);
	}
	screen_end();
	return EXIT_DONE;
}

/* What gpuwmd tells as data, or one picture of it as text, of the terminal's columns or those of most. */
static int top_once(struct top *top, bool is_data)
{
	const struct look *look = &top->look;
	const unsigned columns = terminal_columns(STDOUT_FILENO);
	struct picture picture = {.columns = columns ? columns : TERMINAL_COLUMNS_DEFAULT};

	if (look_take(&top->look) < 0)
		return exit_with_connect_error();
	if (is_data)
		return answer_print(json_pack("{s:O, s:O, s:O?, s:O?, s:O?}", "status", look->status, "list",
					      look->list, "clients", look->clients, "jobs", look->jobs,
					      "metrics", look->metrics));
	letters_update(&top->view.letters, top->look.list);
	head_make(top, &picture);
	body_make(top, &picture);
	picture_print_part(stdout, &picture, 0, picture.count);
	picture_clear(&picture);
	return EXIT_DONE;
}

static int top_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct top *top = calloc(1, sizeof(*top));
	int code;

	(void)client;
	if (!top)
		return exit_with(EXIT_FAILED, NULL, "out of memory");
	top->look.socket = arguments->socket;
	if (arguments->json || once || !terminal_is(STDOUT_FILENO))
		code = top_once(top, arguments->json);
	else
		code = top_live(top);
	look_end(&top->look);
	free(top);
	return code;
}

const struct command command_top = {
	.name = "top",
	.summary = "watch devices, versions, workers and jobs live",
	.about = "The keys: q quits, h shows the others. If stdout is no terminal: the same as --once.",
	.options = top_options,
	.example = "gpuwmctl top",
	.socket = SOCKET_NONE,
	.no_names = true,
	.run = top_run,
};
