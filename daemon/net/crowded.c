#include "crowded.h"
#include "net.h"
#include "session.h"

#include <stdlib.h>
#include <utlist.h>

#define RETRY_MS 10 /* a peer that reads at all has read by then */

struct crowded {
	uv_timer_t timer;
	struct session *first; /* a list */
};

static void crowded_on_timer(uv_timer_t *timer)
{
	struct crowded *crowded = timer->data;

	for (struct session *s = crowded->first; s; s = s->next_crowded)
		fair_due(s->share, &s->task);
	if (!crowded->first)
		uv_timer_stop(timer);
}

struct crowded *crowded_new(uv_loop_t *loop)
{
	struct crowded *crowded = calloc(1, sizeof(*crowded));

	if (!crowded)
		return NULL;
	uv_timer_init(loop, &crowded->timer);
	crowded->timer.data = crowded;
	return crowded;
}

static void crowded_on_closed(uv_handle_t *handle)
{
	free(handle->data);
}

struct crowded *crowded_free(struct crowded *crowded)
{
	if (crowded)
		uv_close((uv_handle_t *)&crowded->timer, crowded_on_closed);
	return NULL;
}

void crowded_add(struct crowded *crowded, struct session *session)
{
	if (session->prev_crowded)
		return;
	DL_PREPEND2(crowded->first, session, prev_crowded, next_crowded);
	if (!uv_is_active((uv_handle_t *)&crowded->timer))
		uv_timer_start(&crowded->timer, crowded_on_timer, RETRY_MS, RETRY_MS);
}

void crowded_remove(struct session *session)
{
	if (!session->prev_crowded)
		return;
	DL_DELETE2(session->net->crowded->first, session, prev_crowded, next_crowded);
	session->prev_crowded = NULL;
}
