#include "complaint.h"
#include "../../base/clock.h"
#include "pace.h"
#include "../../base/limits.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* Until a line says how many were left out. */
#define SUMMARY_MS 10000

struct complaints {
	struct pace *pace;
	uv_timer_t *timer; /* closes on its own; NULL: it has */
};

static enum log_level level_of(enum complaint_kind kind)
{
	const bool is_harmless = kind == COMPLAINT_LEASES || kind == COMPLAINT_REGIONS ||
				 kind == COMPLAINT_CHANGED || kind == COMPLAINT_REFUSED;

	return is_harmless ? LOG_LEVEL_INFO : LOG_LEVEL_WARNING;
}

static const char *noun_of(enum complaint_kind kind)
{
	static const char *const nouns[COMPLAINT_KINDS] = {
		[COMPLAINT_PACKET] = "refused packets",
		[COMPLAINT_CONNECT] = "refused connections",
		[COMPLAINT_CROWDED] = "descriptors that could not be sent",
		[COMPLAINT_LEASES] = "sessions that ended with leases",
		[COMPLAINT_REGIONS] = "ends of regions and of their users",
		[COMPLAINT_FAILED] = "failed versions and jobs",
		[COMPLAINT_CHANGED] = "changes",
		[COMPLAINT_REFUSED] = "refused changes",
		[COMPLAINT_UNWATCHED] = "processes that can't be watched",
		[COMPLAINT_UNTOLD] = "answers that could not be told",
	};

	return nouns[kind];
}

static void tell_withheld(struct complaints *c, uid_t uid, enum complaint_kind kind)
{
	uint64_t count = pace_withheld(c->pace, uid, kind);

	if (count > 0)
		log_write(level_of(kind), "%llu more of uid %u were not logged: %s", (unsigned long long)count,
			  (unsigned)uid, noun_of(kind));
}

static void tell_all_withheld(struct complaints *c)
{
	unsigned kind;
	uid_t uid;

	while (pace_next_withheld(c->pace, &uid, &kind))
		tell_withheld(c, uid, (enum complaint_kind)kind);
}

static void complaints_on_timer(uv_timer_t *timer)
{
	tell_all_withheld(timer->data);
}

struct complaints *complaints_new(uv_loop_t *loop)
{
	struct complaints *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->pace = pace_new(true);
	c->timer = malloc(sizeof(*c->timer));
	if (!c->pace || !c->timer) {
		free(c->timer);
		return complaints_free(c);
	}
	uv_timer_init(loop, c->timer);
	uv_unref((uv_handle_t *)c->timer);
	c->timer->data = c;
	return c;
}

static void complaints_on_closed(uv_handle_t *handle)
{
	free(handle);
}

void complaints_end(struct complaints *c)
{
	if (!c)
		return;
	tell_all_withheld(c);
	uv_close((uv_handle_t *)c->timer, complaints_on_closed);
	c->timer = NULL;
}

struct complaints *complaints_free(struct complaints *c)
{
	if (c)
		pace_free(c->pace);
	free(c);
	return NULL;
}

bool complaint_due(struct complaints *c, uid_t uid, enum complaint_kind kind)
{
	struct pace_rate rate = {.burst = LOG_LINES_BURST, .per_second = LOG_LINES_PER_SECOND};

	if (kind == COMPLAINT_CHANGED)
		rate = (struct pace_rate){.burst = CHANGE_LINES_BURST, .per_second = CHANGE_LINES_PER_SECOND};
	if (!pace_take(c->pace, uid, kind, rate, clock_steady_ms())) {
		if (c->timer && !uv_is_active((uv_handle_t *)c->timer))
			uv_timer_start(c->timer, complaints_on_timer, SUMMARY_MS, 0);
		return false;
	}
	tell_withheld(c, uid, kind);
	return true;
}

void complain(struct complaints *c, uid_t uid, enum complaint_kind kind, const char *format, ...)
{
	char line[2 * TEXT_BYTES_MAX];
	va_list arguments;

	if (!complaint_due(c, uid, kind))
		return;
	va_start(arguments, format);
	vsnprintf(line, sizeof(line), format, arguments);
	va_end(arguments);
	log_write(level_of(kind), "%s", line);
}
