#include "terminal.h"

#include "../../base/utf8.h"
#include "line.h"

#include <stdio.h>
#include <string.h>

#define BAR_WIDTH 24
#define PHASE_SHOWN 63 /* bytes of a phase on a terminal: with the time behind it within 80 columns */
/* Where lines stay: few enough for a log, often enough to see that it goes on. */
#define LINE_NS 10000000000
/* Loaders tell their progress ten times a second: so long without any is worth a word. */
#define STILL_NS 3000000000

void progress_start(struct progress *progress, unsigned columns)
{
	*progress = (struct progress){.columns = columns};
}

/* A phase that counts nothing comes with the figures of the last one that did. */
static bool phase_counts(const struct progress *p)
{
	return p->total > 0 && p->phase_start_done < p->total;
}

/* "0:12" */
static const char *clock_text(uint64_t ns, char ret_text[SHORT_TEXT])
{
	unsigned long long seconds = ns / 1000000000;

	snprintf(ret_text, SHORT_TEXT, "%llu:%02llu", seconds / 60, seconds % 60);
	return ret_text;
}

/* "1.2 GiB/s, 0:12 left"; "" until there is a rate. */
static void left_text(const struct progress *p, uint64_t now_ns, char *ret_text, size_t size)
{
	double seconds = (double)(now_ns - p->phase_start_ns) / 1e9;
	char rate_size[SHORT_TEXT], left[SHORT_TEXT];
	double rate;

	ret_text[0] = '\0';
	if (p->done < p->total && now_ns - p->moved_ns >= STILL_NS) {
		snprintf(ret_text, size, "no progress for %s", clock_text(now_ns - p->moved_ns, left));
		return;
	}
	if (seconds <= 0 || p->done <= p->phase_start_done)
		return;
	rate = (double)(p->done - p->phase_start_done) / seconds;
	clock_text((uint64_t)((double)(p->total - p->done) / rate * 1e9 + 5e8), left);
	snprintf(ret_text, size, "%s/s, %s left", size_text((uint64_t)rate, rate_size), left);
}

/* A line that fills the terminal's last column, or goes on behind it, could not be drawn again. */
static void line_show(const struct progress *p, const char *line)
{
	fprintf(stderr, "\r%.*s\033[K", (int)text_fit(line, p->columns - 1), line);
}

static void line_draw(struct progress *p, uint64_t now_ns)
{
	double share;
	char bar[BAR_WIDTH + 1] = "", rate[64], done_size[SHORT_TEXT], total_size[SHORT_TEXT];
	char figures[192], line[512], since[SHORT_TEXT];
	int width;

	p->drawn = true;
	if (!phase_counts(p)) {
		clock_text(now_ns - p->phase_start_ns, since);
		snprintf(line, sizeof(line), "%-10.*s %s", (int)utf8_cut(p->phase, PHASE_SHOWN), p->phase,
			 since);
		line_show(p, line);
		return;
	}
	share = (double)p->done / (double)p->total;
	memset(bar, ' ', BAR_WIDTH);
	memset(bar, '#', (size_t)(share * BAR_WIDTH));
	left_text(p, now_ns, rate, sizeof(rate));
	width = snprintf(figures, sizeof(figures), "%3u%%  %s of %s%s%s", (unsigned)(share * 100),
			 size_text(p->done, done_size), size_text(p->total, total_size), *rate ? "  " : "",
			 rate);
	/* Where both have no room the figures tell more. */
	if (width + 11 + 3 + BAR_WIDTH < (int)p->columns)
		snprintf(line, sizeof(line), "%-10s [%s] %s", p->phase, bar, figures);
	else
		snprintf(line, sizeof(line), "%-10s %s", p->phase, figures);
	line_show(p, line);
}

void progress_update(struct progress *progress, const char *phase, uint64_t done, uint64_t total,
		     uint64_t now_ns)
{
	struct progress *p = progress;
	char shown[sizeof(p->phase)], size[SHORT_TEXT];

	utf8_show(phase, shown, sizeof(shown));
	if (done > total && total > 0)
		done = total;
	if (done != p->done)
		p->moved_ns = now_ns;
	p->done = done;
	p->total = total;
	if (strcmp(p->phase, shown) != 0) {
		strcpy(p->phase, shown);
		p->phase_start_ns = p->moved_ns = p->told_ns = now_ns;
		p->phase_start_done = p->done;
		if (p->columns == 0 && shown[0] != '\0')
			fprintf(stderr, "%s%s%s\n", shown, phase_counts(p) ? ": " : "",
				phase_counts(p) ? size_text(p->total, size) : "");
	}
	if (p->columns > 0)
		line_draw(p, now_ns);
}

void progress_tick(struct progress *progress, uint64_t now_ns)
{
	struct progress *p = progress;
	char rate[64], done_size[SHORT_TEXT], total_size[SHORT_TEXT], since[SHORT_TEXT];

	if (p->phase[0] == '\0')
		return;
	if (p->columns > 0) {
		line_draw(p, now_ns);
		return;
	}
	if (now_ns - p->told_ns < LINE_NS)
		return;
	p->told_ns = now_ns;
	if (!phase_counts(p)) {
		fprintf(stderr, "%s: for %s\n", p->phase, clock_text(now_ns - p->phase_start_ns, since));
		return;
	}
	left_text(p, now_ns, rate, sizeof(rate));
	fprintf(stderr, "%s: %s of %s%s%s\n", p->phase, size_text(p->done, done_size),
		size_text(p->total, total_size), *rate ? ", " : "", rate);
}

void progress_end(struct progress *progress)
{
	if (progress->drawn)
		fputc('\n', stderr);
	progress->drawn = false;
}
