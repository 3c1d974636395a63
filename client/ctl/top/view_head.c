/* The first lines: which gpuwmd, and what it does. */
#include "view.h"

#include "../answer.h"
#include "../line.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* "2d 3h", "4m 5s" */
static void uptime_text(uint64_t ms, char ret_text[32])
{
	unsigned long long s = ms / 1000;

	if (s >= 86400)
		snprintf(ret_text, 32, "%llud %lluh", s / 86400, s % 86400 / 3600);
	else if (s >= 3600)
		snprintf(ret_text, 32, "%lluh %llum", s / 3600, s % 3600 / 60);
	else
		snprintf(ret_text, 32, "%llum %llus", s / 60, s % 60);
}

static void head_title(const struct look *look, struct picture *picture)
{
	char up[32], kept[64], left[256], clock[16] = "";
	time_t now = time(NULL);
	struct tm local;
	size_t width;

	if (localtime_r(&now, &local))
		strftime(clock, sizeof(clock), "%H:%M:%S", &local);
	uptime_text(answer_number(look->status, "uptime_ms"), up);
	if (json_object_get(look->status, "locked"))
		snprintf(kept, sizeof(kept), "LOCKED");
	else if (json_is_true(json_object_get(look->status, "kept")))
		snprintf(kept, sizeof(kept), "kept, start %llu",
			 (unsigned long long)answer_number(look->status, "epoch"));
	else
		snprintf(kept, sizeof(kept), "NOT KEPT: weights end with it");
	snprintf(left, sizeof(left), "gpuwmd %.32s  pid %llu  up %s  %s%s", answer_text(look->status, "server"),
		 (unsigned long long)answer_number(look->status, "pid"), up, kept,
		 json_is_true(json_object_get(look->status, "draining")) ? "  DRAINING" : "");
	width = text_width(left);
	if (width + 2 + strlen(clock) <= picture->columns)
		picture_line(picture, STYLE_BOLD, "%s%*s", left, (int)(picture->columns - width), clock);
	else
		picture_line(picture, STYLE_BOLD, "%s", left);
}

/* "0.41 ms"; "-" without any. */
static const char *latency_text(double us, char ret_text[SHORT_TEXT])
{
	if (us < 0)
		snprintf(ret_text, SHORT_TEXT, "-");
	else
		snprintf(ret_text, SHORT_TEXT, us < 100000 ? "%.2f ms" : "%.0f ms", us / 1000);
	return ret_text;
}

static void head_figures(const struct top_view *view, const struct look *look, struct picture *picture)
{
	const json_t *before = NULL;
	char p50[SHORT_TEXT], p99[SHORT_TEXT], size[SHORT_TEXT];
	double seconds = (double)answer_number(look->status, "uptime_ms") / 1000;
	struct rates rates;

	picture_line(picture, STYLE_PLAIN, "sessions %llu  leases %llu  versions %llu, %s  loaders %llu%s",
		     (unsigned long long)answer_number(look->status, "sessions"),
		     (unsigned long long)answer_number(look->status, "leases"),
		     (unsigned long long)answer_number(look->status, "versions"),
		     size_text(answer_number(look->status, "bytes"), size),
		     (unsigned long long)answer_number(look->status, "loaders"),
		     json_is_true(json_object_get(look->status, "standby")) ? ", one stands by" : "");
	if (!look->metrics) {
		picture_line(picture, STYLE_DIM, "attaches: only operators and observers are told");
		return;
	}
	if (view->live && look->sample_count > 1) {
		before = look->samples[0].metrics;
		seconds = (double)(look->samples[look->sample_count - 1].at_ms - look->samples[0].at_ms) / 1000;
	}
	rates_of(before, look->metrics, seconds, &rates);
	picture_line(picture, STYLE_PLAIN, "%sattaches %.1f/s  p50 %s  p99 %s  requests %.1f/s  refused %.1f/s",
		     before ? "" : "mean: ", rates.attaches, latency_text(rates.p50_us, p50),
		     latency_text(rates.p99_us, p99), rates.requests, rates.refused);
}

void view_head(const struct top_view *view, const struct look *look, struct picture *picture)
{
	if (look->problem[0])
		picture_line(picture, STYLE_BAD, "NO ANSWER, trying again: %s", look->problem);
	if (!look->status)
		return;
	head_title(look, picture);
	head_figures(view, look, picture);
}
