/* A bar for each device: whose memory its budget is. */
#include "view.h"

#include "../answer.h"
#include "../line.h"
#include "../version.h"

#include "../../../proto/memory_kind.h"
#include "../../../proto/tier_kind.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define FIGURES_WIDTH 22 /* "  123.4 / 128.0 GiB 97%" without what the bar has */
#define NAME_WIDTH 7 /* "cuda:15" */
#define BAR_MAX 200

struct bar {
	char cells[BAR_MAX + 1];
	unsigned width;
	uint64_t capacity, sum;
};

/* Adds bytes behind those before. Cells are rounded by the sum, so that the bar ends where it should. */
static void bar_add(struct bar *bar, uint64_t bytes, char letter)
{
	const double cell = (double)bar->capacity / bar->width;
	unsigned from = (unsigned)((double)bar->sum / cell + 0.5), to;

	bar->sum += bytes;
	to = (unsigned)((double)bar->sum / cell + 0.5);
	/* What is there shows. */
	if (bytes > 0 && to == from && from < bar->width && bar->cells[from] == '.')
		to = from + 1;
	for (; from < to && from < bar->width; from++)
		bar->cells[from] = letter;
}

/* What this version alone has on the device. A version on the host or on files has nothing on its parts' devices. */
static uint64_t bytes_on(const json_t *version, const char *device)
{
	const json_t *part;
	uint64_t bytes = 0;
	enum tier tier;
	size_t i;

	if (tier_find(tier_of(version), &tier) < 0)
		return 0;
	json_array_foreach(json_object_get(version, "parts"), i, part) {
		const char *place = tier_device(tier, answer_text(part, "device"));

		if (place && strcmp(place, device) == 0)
			bytes += answer_number(part, "bytes") - answer_number(part, "shared_bytes");
	}
	return bytes;
}

static void bar_fill(struct bar *bar, const struct top_view *view, const json_t *device, const json_t *list)
{
	const uint64_t used = answer_number(device, "used"), contexts = answer_number(device, "contexts"),
		       mapped = answer_number(device, "still_mapped"), rooms = answer_number(device, "rooms");
	const char *id = answer_text(device, "device");
	const json_t *version, *copy;
	uint64_t copies = 0, known;
	size_t i;

	memset(bar->cells, '.', bar->width);
	bar->cells[bar->width] = '\0';
	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "state"), "failed") != 0)
			bar_add(bar, bytes_on(version, id),
				letters_of(&view->letters, answer_text(version, "version")));
	}
	json_array_foreach(json_object_get(list, "copies"), i, copy) { /* by CUDA IPC */
		if (strcmp(answer_text(copy, "device"), id) == 0)
			copies += answer_number(copy, "bytes");
	}
	known = bar->sum + contexts + mapped + rooms + copies;
	if (used > known)
		bar_add(bar, used - known, '=');
	bar_add(bar, rooms, '%');
	bar_add(bar, copies, '#');
	bar_add(bar, contexts, '+');
	bar_add(bar, mapped, '~');
}

/* The cells, each letter in a colour of its own. */
static void bar_show(const struct bar *bar, char *ret_text, size_t size)
{
	static const char colours[] = {2, 4, 5, 6, 3, 1};
	const bool coloured = terminal_coloured(STDOUT_FILENO);
	size_t length = 0;
	char before = 0;

	for (unsigned i = 0; i < bar->width && length + 32 < size; i++) {
		const char cell = bar->cells[i];

		if (coloured && cell != before) {
			if (cell == '.')
				length += (size_t)snprintf(ret_text + length, size - length, "\033[0;2m");
			else if (cell == '#' || cell == '%' || cell == '+' || cell == '~' || cell == '=')
				length += (size_t)snprintf(ret_text + length, size - length, "\033[0;30;47m");
			else
				length += (size_t)snprintf(ret_text + length, size - length, "\033[0;30;4%dm",
							   colours[(unsigned char)cell % sizeof(colours)]);
		}
		before = cell;
		ret_text[length++] = cell;
	}
	snprintf(ret_text + length, size - length, "%s", coloured ? "\033[0m" : "");
}

static void device_line(const struct top_view *view, const json_t *device, unsigned gpu, const json_t *list,
			struct picture *picture)
{
	struct bar bar = {.capacity = answer_number(device, "budget")};
	char name[24], used[SHORT_TEXT], budget[SHORT_TEXT], cells[BAR_MAX * 16], line[BAR_MAX * 16 + 200];
	const char *id = answer_text(device, "device");
	const uint64_t bytes = answer_number(device, "used");

	/* "cuda:0", as commands take it; the beginnings of two UUIDs may be equal. */
	if (device_uuid(id))
		snprintf(name, sizeof(name), "%.15s:%u", answer_text(device, "kind"), gpu);
	else
		snprintf(name, sizeof(name), "%.15s", id);
	if (json_object_get(device, "lost")) {
		picture_line(picture, STYLE_BAD, "%-*s LOST: %s", NAME_WIDTH, name,
			     answer_text(json_object_get(device, "lost"), "message"));
		return;
	}
	size_text(bytes, used);
	size_text(bar.capacity, budget);
	bar.width = picture->columns > NAME_WIDTH + FIGURES_WIDTH + 16
			    ? picture->columns - NAME_WIDTH - FIGURES_WIDTH - 8
			    : 8;
	if (bar.width > BAR_MAX)
		bar.width = BAR_MAX;
	if (bar.capacity == 0)
		bar.capacity = 1;
	bar_fill(&bar, view, device, list);
	bar_show(&bar, cells, sizeof(cells));
	snprintf(line, sizeof(line), "%-*s [%s] %3.0f%% %9s / %s", NAME_WIDTH, name, cells,
		 100.0 * (double)bytes / (double)bar.capacity, used, budget);
	picture_styled(picture, line);
}

void view_devices(const struct top_view *view, const struct look *look, struct picture *picture)
{
	const json_t *device;
	unsigned gpus = 0;
	size_t i;

	json_array_foreach(json_object_get(look->status, "devices"), i, device) {
		device_line(view, device, gpus, look->list, picture);
		gpus += device_uuid(answer_text(device, "device")) != NULL;
	}
	picture_line(picture, STYLE_DIM,
		     "%*s letters: versions  = shared, regions, loading  + contexts  . free", NAME_WIDTH, "");
}
