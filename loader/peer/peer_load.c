#include "../jobs.h"

#include "peer_dial.h"
#include "peer_take.h"
#include "peer_part.h"

#include "../../base/clock.h"
#include "../../base/bytes.h"
#include "../../peer/exchange.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20 /* how soon it sees a cancel, and that a part is complete */

struct peer_load {
	const struct job_load_params *params;
	const struct peer_settings *settings;
	struct work *work;
	struct error *error;
	struct peer_keys *keys;
	struct peer_places places;
	struct peer_asking asking;
	struct peer_offer offer;
	struct taken_part parts[PARTS_PER_VERSION_MAX]; /* first one of each rank */
	size_t part_count;
	struct peer_fetch fetches[PARTS_PER_VERSION_MAX];
	pthread_t threads[PARTS_PER_VERSION_MAX];
	size_t thread_count;
	atomic_bool stop;
	struct peer_serve *serve; /* NULL: nobody is served */
	uint64_t told; /* bytes of progress */
};

/* ---- asking ---------------------------------------------------------------- */

static int peer_load_look(void *user_data)
{
	struct peer_load *load = user_data;
	int r = work_advance(0, load->work);

	return r < 0 ? work_stopped(load->work, r, load->error) : 0;
}

static int ask_link(void *user_data, struct link *link, struct peer_place *place, struct error *error)
{
	struct peer_load *load = user_data;
	const struct peer_wish wish = {.ref = load->places.ref, .params = load->params};
	int r = peer_offer_take(link, &wish, peer_load_look, load, &load->offer, error);

	(void)place;
	if (r == 0)
		r = peer_offer_expect(&load->offer, load->params->wish.fingerprint, link_peer(link), error);
	return r;
}

static int peer_load_begin(struct peer_load *load)
{
	int r = peer_keys_read(load->settings, &load->keys, load->error);

	if (r == 0)
		r = peer_places_find(load->params->wish.source, load->settings, false, &load->places,
				     load->error);
	load->asking = (struct peer_asking){.keys = load->keys,
					    .places = &load->places,
					    .work = load->work,
					    .ask = ask_link,
					    .user_data = load};
	return r < 0 ? r : peer_ask(&load->asking, load->error);
}

/* ---- parts ----------------------------------------------------------------- */

/* As a load of files: replicas of one rank on every device, or one rank on each device in their order, or all ranks on one device.
 * peer_offer_fits has compared ranks and devices. */
static void plan_parts(struct peer_load *load)
{
	const struct job_load_params *params = load->params;
	uint32_t world = load->offer.world;

	load->part_count = world > 1 ? world : params->wish.devices.count;
	for (size_t i = 0; i < load->part_count; i++) {
		uint32_t rank = world > 1 ? (uint32_t)i : 0;

		load->parts[i] = (struct taken_part){
			.offer = &load->offer.parts[rank],
			.id = params->wish.devices.items[params->wish.devices.count == 1 ? 0 : i],
			.rank = rank,
			.world = world,
			.index = -1,
			.origin = i > 0 && world == 1 ? &load->parts[0] : NULL,
			.fingerprint = &load->offer.fingerprint,
		};
	}
}

static int begin_parts(struct peer_load *load)
{
	int r = work_phase(load->work, "allocating", 0);

	plan_parts(load);
	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = peer_part_begin(&load->parts[i], load->params, load->work,
				    i > 0 ? &load->parts[0].publish : NULL, load->error);
	return r;
}

/* ---- fetching -------------------------------------------------------------- */

static int start_fetch(struct peer_load *load, size_t i)
{
	struct peer_fetch *fetch = &load->fetches[i];
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned threads = cores > 0 ? (unsigned)cores / (unsigned)load->part_count : 1;
	unsigned lanes = PEER_LANES_OF_LOAD / (unsigned)load->part_count;
	int r;

	*fetch = (struct peer_fetch){
		.part = &load->parts[i],
		.offer = &load->offer,
		.keys = load->keys,
		.places = &load->places,
		.serves = load->serve ? peer_serve_port(load->serve) : 0,
		.threads = threads > 0 ? threads : 1,
		.lanes = lanes > 0 ? lanes : 1,
		.clear = load->settings->clear,
		.pause_ms = PEER_PAUSE_MS,
		.patience_ms = PEER_PATIENCE_MS,
		.watch_ms = PEER_WATCH_MS,
		.slow_ms = PEER_SLOW_MS,
		.stop = &load->stop,
	};
	r = -pthread_create(&load->threads[i], NULL, peer_fetch_run, fetch);
	if (r < 0)
		return error_set(load->error, -EAGAIN, NULL, "no thread can be made to take rank %u: %s",
				 load->parts[i].rank, strerror(-r));
	load->thread_count++;
	return 0;
}

/* Returns 1 if all are complete, 0 if not yet, or the error of one of them. */
static int look_at_fetches(struct peer_load *load)
{
	bool all = true;

	for (size_t i = 0; i < load->thread_count; i++) {
		struct peer_fetch *fetch = &load->fetches[i];

		if (!atomic_load(&fetch->ended)) {
			all = false;
		} else if (fetch->error.code) {
			*load->error = fetch->error;
			return fetch->error.code;
		}
	}
	return all;
}

static int peer_load_watch(struct peer_load *load)
{
	int r = 0;

	while (r == 0) {
		uint64_t bytes = 0;
		int stopped;

		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		r = look_at_fetches(load);
		if (r < 0)
			return r;
		for (size_t i = 0; i < load->part_count; i++)
			bytes += peer_pieces_bytes(load->parts[i].pieces);
		stopped = work_advance(bytes - load->told, load->work);
		load->told = bytes;
		r = stopped < 0 ? stopped : r;
	}
	return r < 0 ? r : 0;
}

/* Others may take from here as long as they do, but not for ever. */
static int linger(struct peer_load *load)
{
	int64_t deadline = clock_deadline(PEER_LINGER_MS);
	int r = 0;

	while (r == 0 && load->serve && peer_serve_count(load->serve) > 0 && clock_left(deadline) > 0) {
		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		r = work_advance(0, load->work);
	}
	return r;
}

static uint64_t bytes_of_parts(const struct peer_load *load)
{
	uint64_t bytes = 0;

	for (size_t i = 0; i < load->part_count; i++)
		bytes += load->parts[i].offer->bytes;
	return bytes;
}

/* Says what a take spent on what: how long the way to the first message took, of the part that had it first, and how fast the
 * rest came. */
static void note_speed(struct peer_load *load, double began)
{
	const struct take_times *first = NULL;
	char all[BYTES_TEXT], rest[BYTES_TEXT];
	double last = 0, seconds, all_seconds;
	uint64_t came = 0;

	for (size_t i = 0; i < load->part_count; i++) {
		const struct take_times *times = &load->parts[i].times;

		if (times->first == 0)
			continue;
		first = !first || times->first < first->first ? times : first;
		last = times->last > last ? times->last : last;
		came += times->bytes;
	}
	if (!first)
		return;
	work_note(
		load->work,
		"%s was open after %.3f s, the peer's after %.3f s, both had met after %.3f s, and the first message came "
		"after %.3f s",
		first->wire, first->opened - began, first->agreed - began, first->met - began,
		first->first - began);
	if (came == 0 || last <= first->first)
		return;
	seconds = last - first->first;
	all_seconds = clock_steady_seconds() - began;
	work_note(
		load->work,
		"the other %s came in %.3f s (%.2f GB/s); all %s were compared with their SHA-256 after %.3f s (%.2f GB/s)",
		bytes_format(came, rest), seconds, (double)came / seconds / 1e9,
		bytes_format(load->offer.bytes, all), all_seconds,
		(double)load->offer.bytes / all_seconds / 1e9);
}

static void note_failures(const struct peer_load *load)
{
	for (size_t i = 0; i < load->part_count; i++) {
		const struct peer_fetch *fetch = &load->fetches[i];

		if (fetch->failures > 0)
			work_note(load->work,
				  "rank %u: %u connections failed before it was complete, the last one: %s",
				  fetch->part->rank, fetch->failures, fetch->last.message);
		if (fetch->left > 0)
			work_note(load->work, "rank %u: %u slow nodes were left to look for a faster one",
				  fetch->part->rank, fetch->left);
	}
}

/* Says which way the bytes took, and what would have been a better one. */
static void note_ways(const struct peer_load *load)
{
	for (size_t i = 0; i < load->part_count; i++) {
		const struct peer_way *way = &load->fetches[i].way;

		if (!way->ops)
			continue;
		work_note(load->work, "rank %u: the bytes came by %s%s%s%s", load->parts[i].rank,
			  way->ops->title,
			  way->ops == &wire_tls && load->settings->clear
				  ? ", not encrypted where the server agreed"
				  : "",
			  way->better[0] ? "; " : "", way->better);
	}
}

static int fetch_all(struct peer_load *load)
{
	double began = clock_steady_seconds();
	int r = work_phase(load->work, "taking", bytes_of_parts(load));
	struct error why;

	/* If no port can be had for the next taker, it goes to another node: that is no error of this load. */
	if (peer_serve_begin(load->keys, load->settings, &load->offer, load->parts, &load->serve, &why) < 0)
		work_note(load->work, "other nodes can't take from here meanwhile: %s", why.message);
	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = start_fetch(load, i);
	if (r == 0)
		r = peer_load_watch(load);
	atomic_store(&load->stop, true);
	while (load->thread_count > 0)
		pthread_join(load->threads[--load->thread_count], NULL);
	note_failures(load);
	note_ways(load);
	if (r == 0) {
		note_speed(load, began);
		r = linger(load);
	}
	load->serve = peer_serve_end(load->serve);
	return r;
}

/* ---- the end --------------------------------------------------------------- */

static int seal_all(struct peer_load *load)
{
	int r = work_phase(load->work, "sealing", 0);

	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = peer_part_seal(&load->parts[i], load->error);
	return r;
}

static int hand_in_all(struct peer_load *load)
{
	struct check_result results[PARTS_PER_VERSION_MAX];
	int r = work_phase(load->work, "checking", bytes_of_parts(load));

	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = peer_part_check(&load->parts[i], load->work, &results[i], load->error);
	if (r == 0)
		r = work_phase(load->work, "handing in", 0);
	for (size_t i = 0; r == 0 && i < load->part_count; i++)
		r = peer_part_hand_in(&load->parts[i], load->work, &results[i], load->error);
	return r;
}

static void peer_load_end(struct peer_load *load)
{
	for (size_t i = 0; i < load->part_count; i++)
		peer_part_end(&load->parts[i]);
	peer_offer_clear(&load->offer);
	peer_ask_end(&load->asking);
	peer_keys_release(load->keys);
	free(load);
}

/* Of a dry run, which makes no memory. */
static int tell_plan(struct peer_load *load)
{
	struct load_plan plan;

	plan_parts(load);
	load_plan_begin(&plan, load->params);
	plan.told.bytes = load->offer.bytes;
	for (uint32_t i = 0; i < load->offer.world; i++)
		plan.told.tensors += load->offer.parts[i].view.header->tensor_count;
	for (size_t i = 0; i < load->part_count; i++)
		load_plan_add(&plan, load->parts[i].offer->bytes, load->parts[i].offer->segment_count);
	load->part_count = 0; /* none has memory */
	return load_plan_end(&plan, load->work, load->error);
}

int peer_load_run(const struct job_load_params *params, const struct peer_settings *settings, struct work *work,
		  struct error *error)
{
	static int (*const dry_run[])(struct peer_load *) = {peer_load_begin, tell_plan, NULL};
	static int (*const all[])(struct peer_load *) = {peer_load_begin, begin_parts, fetch_all,
							 seal_all,        hand_in_all, NULL};
	struct peer_load *load = calloc(1, sizeof(*load));
	int r = 0;

	if (!load)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	load->params = params;
	load->settings = settings;
	load->work = work;
	load->error = error;
	for (int (*const *step)(struct peer_load *) = params->wish.dry_run ? dry_run : all; r == 0 && *step;
	     step++)
		r = (*step)(load);
	peer_load_end(load);
	return r;
}
