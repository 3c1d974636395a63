#include "progress.h"

#include "table.h"

#include <stdio.h>
#include <string.h>

#define BAR_WIDTH 24

void progress_start(struct progress *progress, bool terminal)
{
	*progress = (struct progress){.terminal = terminal};
}

static void bar_text(uint64_t done, uint64_t total, char ret_bar[BAR_WIDTH + 1])
{
	int filled = (int)((double)done / (double)total * BAR_WIDTH);

	memset(ret_bar, ' ', BAR_WIDTH);
	memset(ret_bar, '#', (size_t)filled);
	ret_bar[BAR_WIDTH] = '\0';
}

/* " 1.2 GiB/s, 0:12 left"; "" until there is a rate. */
static void rate_text(const struct progress *progress, uint64_t done, uint64_t total, uint64_t now_ns,
		      char *ret_text, size_t size)
{
	double seconds = (double)(now_ns - progress->phase_start_ns) / 1e9;
	char rate_size[SHORT_TEXT];
	double rate;
	unsigned left;

	ret_text[0] = '\0';
	if (seconds <= 0 || done <= progress->phase_start_done)
		return;
	rate = (double)(done - progress->phase_start_done) / seconds;
	left = (unsigned)((double)(total - done) / rate + 0.5);
	snprintf(ret_text, size, "  %s/s, %u:%02u left", size_text((uint64_t)rate, rate_size), left / 60,
		 left % 60);
}

static void line_draw(struct progress *progress, uint64_t done, uint64_t total, uint64_t now_ns)
{
	char bar[BAR_WIDTH + 1], rate[64], done_size[SHORT_TEXT], total_size[SHORT_TEXT];

	progress->drawn = true;
	if (total == 0) {
		fprintf(stderr, "\r%-10s\033[K", progress->phase);
		return;
	}
	bar_text(done, total, bar);
	rate_text(progress, done, total, now_ns, rate, sizeof(rate));
	fprintf(stderr, "\r%-10s [%s] %3u%%  %s of %s%s\033[K", progress->phase, bar,
		(unsigned)((double)done / (double)total * 100), size_text(done, done_size),
		size_text(total, total_size), rate);
}

void progress_update(struct progress *progress, const char *phase, uint64_t done, uint64_t total,
		     uint64_t now_ns)
{
	char shown[sizeof(progress->phase)], size[SHORT_TEXT];
	bool changed;

	text_printable(phase, shown, sizeof(shown));
	changed = strcmp(progress->phase, shown) != 0;
	if (changed) {
		strcpy(progress->phase, shown);
		progress->phase_start_ns = now_ns;
		progress->phase_start_done = done;
	}
	if (done > total && total > 0)
		done = total;
	if (progress->terminal)
		line_draw(progress, done, total, now_ns);
	else if (changed && shown[0] != '\0')
		fprintf(stderr, "%s%s%s\n", shown, total ? ": " : "", total ? size_text(total, size) : "");
}

void progress_end(struct progress *progress)
{
	if (progress->drawn)
		fputc('\n', stderr);
	progress->drawn = false;
}
