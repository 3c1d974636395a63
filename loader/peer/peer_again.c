/* Taking a part again, from any node that has the content of its version. */
#include "../jobs.h"

#include "peer_take.h"

#include "../../base/clock.h"
#include "../../peer/exchange.h"
#include "../../proto/tier_kind.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LOOK_MS 20 /* how soon it sees a cancel, and that the part is complete */

struct again {
	const struct peer_again *given;
	struct work *work;
	struct peer_keys *keys;
	bool clear; /* bytes need not be encrypted */
	struct peer_places places;
	struct peer_asking asking;
	struct peer_offer offer;
	struct taken_part part;
	struct peer_fetch fetch;
	atomic_bool stop;
};

/* ---- finding the content ---------------------------------------------------- */

static int again_look(void *user_data)
{
	const struct again *again = user_data;

	return work_advance(0, again->work);
}

/* Returns whether the version may be the one. The server tells a fingerprint if it has computed all sums. If the node is this one, its list
 * has the version that is to come back, too. */
static bool may_be(const struct again *again, const struct peer_version *version)
{
	const struct job_move_params *params = again->given->params;

	if (version_id_equal(version->version, params->again->version))
		return false;
	if (version->world != params->place.world || version->bytes != params->again->bytes)
		return false;
	if (version->fingerprint)
		return strcmp(version->fingerprint, params->again->fingerprint) == 0;
	return version->content && digest_equal(version->content, params->again->content);
}

/* What a node's list has of the content. */
struct found {
	char ref[VERSION_ID_TEXT]; /* "": nothing yet */
	bool lies_below; /* it is there, on a lower tier */
	enum tier tier; /* which one */
};

static int look_at_page(const struct again *again, const struct peer_message *page, struct found *found,
			uint64_t *at, struct error *error)
{
	struct peer_version version;
	const msgpack_object *items;
	struct fields f;
	uint32_t count;
	int r = 0;

	fields_of(&f, page->message.body);
	items = fields_array(&f, "versions", &count);
	for (uint32_t i = 0; r == 0 && i < count && !found->ref[0]; i++) {
		enum tier tier;

		r = record_read_map(&peer_version_record, &items[i], page->message.zone, &version, error);
		if (r < 0 || !may_be(again, &version) || tier_find(version.tier, &tier) < 0)
			continue;
		found->lies_below = !tier_is_resident(tier);
		found->tier = tier;
		if (!found->lies_below)
			hex128_format(version.version->bytes, found->ref);
	}
	*at += count;
	if (r == 0 && f.error.code < 0) {
		*error = f.error;
		r = error->code;
	}
	/* A page without versions would be asked for again and again. */
	return r == 0 && count == 0 ? 1 : r;
}

static int find_content(const struct again *again, struct link *link, struct found *ret, struct error *error)
{
	struct peer_list_result result = {.total = 1};
	struct peer_message page;
	uint64_t at = 0;
	int r = 0;

	*ret = (struct found){0};
	while (r == 0 && !ret->ref[0] && at < result.total && at <= VERSIONS_MAX) {
		r = peer_call(link, &form_peer_list, &(struct peer_list_params){at}, &result, &page, error);
		if (r < 0)
			break;
		r = look_at_page(again, &page, ret, &at, error);
		peer_message_clear(&page);
	}
	if (r < 0 || ret->ref[0])
		return r < 0 ? r : 0;
	if (ret->lies_below)
		return error_set(
			error, -EAGAIN, "promote it there first (gpuwmctl promote)",
			"%s has the content of %s on %s, and only versions on their devices are served",
			link_peer(link), again->places.ref, tier_name(ret->tier));
	return error_set(error, -ENOENT, NULL, "%s has no version with the content of %s", link_peer(link),
			 again->places.ref);
}

/* ---- the offer -------------------------------------------------------------- */

/* The fingerprint covers the index, so that only an index which was damaged here differs. */
static int same_index(const struct again *again, struct link *link, struct error *error)
{
	const struct peer_again *given = again->given;
	const struct peer_offer_part *part = &again->offer.parts[given->params->place.rank];

	if (part->index_bytes == given->index_bytes &&
	    memcmp(part->index, given->index, part->index_bytes) == 0)
		return 0;
	return error_set(error, -EBADMSG, "retire the version, and take it again",
			 "%s has another index of rank %u", link_peer(link),
			 (unsigned)given->params->place.rank);
}

static int ask_link(void *user_data, struct link *link, struct peer_place *place, struct error *error)
{
	struct again *again = user_data;
	const struct job_again *wanted = again->given->params->again;
	struct found found;
	struct peer_wish wish = {.ref = found.ref, .bytes = wanted->bytes};
	int r = find_content(again, link, &found, error);

	if (r == 0)
		r = peer_offer_take(link, &wish, again_look, again, &again->offer, error);
	if (r < 0)
		return r;
	r = peer_offer_expect(&again->offer, wanted->fingerprint, link_peer(link), error);
	if (r == 0)
		r = same_index(again, link, error);
	if (r == 0)
		snprintf(place->ref, sizeof(place->ref), "%s", found.ref);
	else
		peer_offer_clear(&again->offer);
	return r;
}

static int again_ask(struct again *again, const struct peer_settings *settings, struct error *error)
{
	int r = peer_keys_read(settings, &again->keys, error);

	again->clear = settings->clear;
	if (r == 0)
		r = peer_places_find(again->given->params->again->source, settings, true, &again->places,
				     error);
	again->asking = (struct peer_asking){.keys = again->keys,
					     .places = &again->places,
					     .work = again->work,
					     .persists = true,
					     .ask = ask_link,
					     .user_data = again};
	return r < 0 ? r : peer_ask(&again->asking, error);
}

/* ---- the bytes -------------------------------------------------------------- */

static int again_watch(struct again *again, struct error *error)
{
	uint64_t told = 0;
	int r = 0;

	while (r == 0 && !atomic_load(&again->fetch.ended)) {
		uint64_t bytes = peer_pieces_bytes(again->part.pieces);

		nanosleep(&(struct timespec){.tv_nsec = LOOK_MS * 1000000}, NULL);
		r = work_advance(bytes - told, again->work);
		told = bytes;
	}
	return r < 0 ? work_stopped(again->work, r, error) : 0;
}

static int again_fetch(struct again *again, struct error *error)
{
	const struct job_place *place = &again->given->params->place;
	const struct peer_offer_part *offer = &again->offer.parts[place->rank];
	const long cores = sysconf(_SC_NPROCESSORS_ONLN);
	pthread_t thread;
	int r;

	again->part = (struct taken_part){
		.offer = offer,
		.id = again->given->device->id,
		.rank = (uint32_t)place->rank,
		.world = (uint32_t)place->world,
		.device = *again->given->device,
		.index = -1,
		.segments = again->given->segments,
		.pieces = peer_pieces_new(offer),
	};
	if (!again->part.pieces)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	for (uint32_t i = 0; i < offer->segment_count; i++) {
		const struct peer_run run = {i, 0, (uint32_t)(offer->first[i + 1] - offer->first[i])};

		if (!again->given->segments[i].address) /* the part shares it */
			peer_pieces_here(again->part.pieces, &run);
	}
	again->fetch = (struct peer_fetch){
		.part = &again->part,
		.offer = &again->offer,
		.keys = again->keys,
		.places = &again->places,
		.threads = cores > 0 ? (unsigned)cores : 1,
		.lanes = PEER_LANES_OF_LOAD,
		.clear = again->clear,
		.pause_ms = PEER_PAUSE_MS,
		.patience_ms = PEER_PATIENCE_MS,
		.watch_ms = PEER_WATCH_MS,
		.slow_ms = PEER_SLOW_MS,
		.stop = &again->stop,
	};
	r = work_phase(again->work, "taking", offer->bytes);
	if (r == 0)
		r = -pthread_create(&thread, NULL, peer_fetch_run, &again->fetch);
	if (r < 0)
		return error_set(error, -EAGAIN, NULL, "no thread can be made to take rank %u: %s",
				 again->part.rank, strerror(-r));
	r = again_watch(again, error);
	atomic_store(&again->stop, true);
	pthread_join(thread, NULL);
	if (r == 0 && again->fetch.error.code)
		*error = again->fetch.error;
	return r < 0 ? r : again->fetch.error.code;
}

int peer_again_run(const struct peer_again *given, const struct peer_settings *settings, struct work *work,
		   struct error *error)
{
	struct again *again = calloc(1, sizeof(*again));
	int r;

	if (!again)
		return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory");
	again->given = given;
	again->work = work;
	r = again_ask(again, settings, error);
	if (r == 0)
		r = again_fetch(again, error);
	peer_pieces_free(again->part.pieces);
	peer_offer_clear(&again->offer);
	peer_ask_end(&again->asking);
	peer_keys_release(again->keys);
	free(again);
	return r;
}
