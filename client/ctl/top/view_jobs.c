/* The jobs that run or wait, and those that failed lately. */
#include "view.h"

#include "../answer.h"
#include "../terminal.h"
#include "../line.h"

#include "../../../base/utf8.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define FAILED_SHOWN_MS 600000 /* ten minutes: time to see it */
#define BAR_WIDTH 10

static bool job_is_shown(const json_t *job)
{
	const char *state = answer_text(job, "state");
	const uint64_t ended = answer_number(job, "ended_ms");

	if (strcmp(state, "failed") == 0)
		return (uint64_t)time(NULL) * 1000 < ended + FAILED_SHOWN_MS;
	return strcmp(state, "done") != 0 && strcmp(state, "cancelled") != 0;
}

static void job_row(const json_t *job, struct picture *picture, const struct grid_column *columns)
{
	const json_t *phases = json_object_get(job, "phases"),
		     *last = json_array_get(phases, json_array_size(phases) - 1);
	const uint64_t done = answer_number(job, "done"), total = answer_number(job, "total"),
		       ms = answer_number(last, "ms");
	/* Bytes a second of the phase that runs; 0: it counts none. */
	const double speed = ms > 0 ? (double)answer_number(last, "bytes") * 1000 / (double)ms : 0;
	const char *state = answer_text(job, "state");
	char id[24], name[UTF8_SHOWN_MAX(300)], phase[UTF8_SHOWN_MAX(256)], raw[600], size[SHORT_TEXT],
		rate[SHORT_TEXT + 2] = "", left[SHORT_TEXT] = "", bar[BAR_BYTES], share[8] = "";
	const bool runs = strcmp(state, "running") == 0;

	snprintf(id, sizeof(id), "%llu", (unsigned long long)answer_number(job, "job"));
	snprintf(raw, sizeof(raw), "%s@%s", answer_text(job, "model"), answer_text(job, "tag"));
	utf8_show(raw, name, sizeof(name));
	utf8_show(runs && *answer_text(job, "phase") ? answer_text(job, "phase") : state, phase, sizeof(phase));
	if (speed >= 1 && done < total) {
		snprintf(rate, sizeof(rate), "%s/s", size_text((uint64_t)speed, size));
		time_text((uint64_t)((double)(total - done) / speed * 1000), left);
	}
	if (total > 0)
		snprintf(share, sizeof(share), "%3.0f%%", 100.0 * (double)done / (double)total);
	grid_row(picture, columns, state_style(state),
		 (const char *[]){id, answer_text(job, "kind"), name, phase,
				  total > 0 ? view_bar((double)done / (double)total, BAR_WIDTH, bar) : "",
				  share, rate, left});
	if (json_object_get(job, "error"))
		picture_line(picture, STYLE_BAD, "    %s",
			     answer_text(json_object_get(job, "error"), "message"));
}

void view_jobs(const struct top_view *view, const struct look *look, struct picture *picture)
{
	static const struct grid_column columns[] = {
		{"JOB", 5, true, 0},     {"KIND", 6, false, 100},       {"VERSION", 0, false, 0},
		{"PHASE", 10, false, 0}, {"DONE", BAR_WIDTH, false, 0}, {"", 4, true, 0},
		{"RATE", 11, true, 66},  {"LEFT", 8, true, 56},         {0},
	};
	const json_t *job;
	bool any = false;
	size_t i;

	if (!look->jobs)
		return;
	json_array_foreach(json_object_get(look->jobs, "jobs"), i, job) {
		if (!job_is_shown(job) || !view_shows(view, answer_text(job, "model")))
			continue;
		if (!any) {
			picture_section(picture, "JOBS");
			grid_heads(picture, columns);
		}
		any = true;
		job_row(job, picture, columns);
	}
}
