#include "peer_take.h"

#include "../../base/clock.h"
#include "../../peer/exchange.h"

#include <errno.h>
#include <time.h>

#define LOOK_MS 20 /* how soon it sees a cancel */

static int asking_look(struct peer_asking *asking, struct error *error)
{
	int r = work_advance(0, asking->work);

	return r < 0 ? work_stopped(asking->work, r, error) : 0;
}

struct look {
	struct peer_asking *asking;
	struct error *error;
};

static int look_at_work(void *user_data)
{
	const struct look *look = user_data;

	return asking_look(look->asking, look->error);
}

static int ask_place(struct peer_asking *asking, struct link *link, struct peer_place *place,
		     struct error *error)
{
	struct peer_hello_result hello;
	struct peer_message message;
	int r = peer_greet(link, "gpuwm-loader " GPUWM_VERSION, &hello, &message, error);

	if (r < 0)
		return r;
	peer_message_clear(&message);
	r = asking->ask(asking->user_data, link, place, error);
	if (r == 0)
		work_note(asking->work, "%s has the version", link_peer(link));
	return r;
}

/* Returns 0 if a node has the version, 1 if none has, and fails with what ends the job. */
static int ask_all(struct peer_asking *asking, bool only_busy, struct error *error)
{
	struct look look = {asking, error};
	struct peer_dialled dialled;
	int r;

	peer_dial_free(asking->dial);
	asking->dial = peer_dial_new(asking->keys, asking->places, only_busy);
	if (!asking->dial)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	while ((r = peer_dial_next(asking->dial, look_at_work, &look, &dialled)) == 1) {
		struct peer_place *place = &asking->places->items[dialled.place];

		if (dialled.link) {
			r = ask_place(asking, dialled.link, place, error);
			link_close(dialled.link);
		} else {
			*error = dialled.error;
			r = error->code;
		}
		place->offered = r == 0;
		if (r == 0 || r == -ECANCELED || r == -ENOMEM)
			return r;
		place->why = *error;
		if (asking->persists || asking->places->count > 1)
			work_note(asking->work, "%s", error->message);
	}
	return r < 0 ? r : 1;
}

/* Waits until nodes may be asked again. Returns 0, or what ended the job meanwhile. */
static int pause_asking(struct peer_asking *asking, int64_t ms, struct error *error)
{
	const int64_t deadline = clock_deadline(ms);
	int r = 0;

	while (r == 0 && clock_left(deadline) > 0) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		r = asking_look(asking, error);
	}
	return r;
}

static bool any_is_busy(const struct peer_places *places)
{
	for (size_t i = 0; i < places->count; i++) {
		if (peer_place_is_busy(&places->items[i]))
			return true;
	}
	return false;
}

int peer_ask(struct peer_asking *asking, struct error *error)
{
	const struct peer_places *places = asking->places;
	const int64_t deadline = clock_deadline(PEER_PATIENCE_MS);
	int64_t pause_ms = PEER_PAUSE_MS;
	int r = work_phase(asking->work, "asking the peer", 0);

	if (r < 0)
		return r;
	if (places->more > 0)
		work_note(asking->work, "a load asks %d nodes at most: %zu are left out", PEER_PLACES_MAX,
			  places->more);
	if (places->unknown[0])
		work_note(asking->work, "%s", places->unknown);
	r = ask_all(asking, false, error);
	while (r == 1 && (asking->persists || any_is_busy(places)) && clock_left(deadline) > 0) {
		r = pause_asking(asking, pause_ms, error);
		if (r == 0)
			r = ask_all(asking, !asking->persists, error);
		if (pause_ms < PEER_PAUSE_MS * PEER_PAUSES_MAX)
			pause_ms *= 2;
	}
	return r == 1 ? peer_places_explain(places->items, places->count, places->ref, error) : r;
}

void peer_ask_end(struct peer_asking *asking)
{
	peer_dial_free(asking->dial);
	asking->dial = NULL;
}
