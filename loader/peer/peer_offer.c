#include "peer_offer.h"

#include "../devices/devices.h"

#include "../../base/bytes.h"
#include "../../peer/exchange.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* How many sums are received in one go, before it looks whether the load was cancelled: those of 256 MiB. The peer may have to compute
 * them first, and has LINK_SILENCE_MS for all of these: 9 MB/s, which a busy machine hashes too. */
#define SUMS_AT_ONCE 64

struct asking {
	struct link *link;
	peer_look_fn *look;
	void *user_data;
	struct peer_offer *offer;
	struct error *error;
};

static int offer_no_memory(struct error *error)
{
	return error_set(error, -ENOMEM, NULL, "gpuwm-loader is out of memory for what a peer offers");
}

/* ---- find ------------------------------------------------------------------ */

static int check_part(const struct asking *asking, const struct peer_part *part, uint64_t rank)
{
	if (part->rank != rank)
		return error_set(asking->error, -EBADMSG, NULL,
				 "%s names rank %" PRIu64 " where rank %" PRIu64 " should be",
				 link_peer(asking->link), part->rank, rank);
	if (part->index_bytes == 0 || part->index_bytes > INDEX_BYTES_MAX)
		return error_set(asking->error, -EBADMSG, NULL,
				 "%s says that the index of rank %" PRIu64 " has %" PRIu64
				 " bytes; 1 to %" PRIu64 " are possible",
				 link_peer(asking->link), rank, part->index_bytes, (uint64_t)INDEX_BYTES_MAX);
	return 0;
}

/* model and tag become parts of a reference, which is cut at its '@' again. */
static int check_name(const struct asking *asking, const char *name)
{
	const char *why = name_wrong(name);

	if (!why)
		return 0;
	return error_set(asking->error, -EBADMSG, NULL, "%s names a version by \"%.*s\", which %s",
			 link_peer(asking->link), NAME_BYTES_MAX, name, why);
}

static int check_found(const struct asking *asking, const struct peer_find_result *found)
{
	int r = check_name(asking, found->model);

	if (r == 0)
		r = check_name(asking, found->tag);
	if (r < 0)
		return r;

	if (found->piece_bytes != SUMS_PIECE_BYTES)
		return error_set(asking->error, -ENOTSUP, "run the same release of gpuwm on both nodes",
				 "%s has pieces of %" PRIu64 " bytes, this node of %" PRIu64,
				 link_peer(asking->link), found->piece_bytes, (uint64_t)SUMS_PIECE_BYTES);
	if (found->world == 0 || found->world > PARTS_PER_VERSION_MAX || found->parts.count != found->world)
		return error_set(asking->error, -EBADMSG, NULL,
				 "%s says that the version has %" PRIu64 " ranks, and names %u of them",
				 link_peer(asking->link), found->world, found->parts.count);
	for (uint32_t i = 0; r == 0 && i < found->parts.count; i++)
		r = check_part(asking, &found->parts.items[i], i);
	return r;
}

static int take_found(struct asking *asking, const struct peer_find_result *found)
{
	struct peer_offer *offer = asking->offer;
	int r = check_found(asking, found);

	if (r < 0)
		return r;
	offer->version = *found->version;
	snprintf(offer->ref, sizeof(offer->ref), "%s@%s", found->model, found->tag);
	offer->parts = calloc(found->parts.count, sizeof(*offer->parts));
	if (!offer->parts)
		return offer_no_memory(asking->error);
	offer->world = (uint32_t)found->world;
	for (uint32_t i = 0; i < offer->world; i++) {
		offer->parts[i].index_bytes = found->parts.items[i].index_bytes;
		offer->parts[i].segment_count = (uint32_t)found->parts.items[i].segments;
		offer->parts[i].bytes = found->parts.items[i].bytes;
	}
	return 0;
}

static int offer_find(struct asking *asking, const char *ref)
{
	const struct peer_find_params params = {.ref = ref};
	struct peer_find_result found;
	struct peer_message message;
	int r = peer_call(asking->link, &form_peer_find, &params, &found, &message, asking->error);

	if (r < 0)
		return r;
	r = take_found(asking, &found);
	peer_message_clear(&message);
	return r;
}

/* ---- room ------------------------------------------------------------------ */

#define DOUBT "; if the size can't be true, look at that node with gpuwmctl ls"
#define REMEDY "name a larger device" DOUBT
#define REMEDY_RANKS "name larger devices, or one for each rank" DOUBT

static int offer_fits_device(const char *id, uint64_t bytes, const struct peer_offer *offer, const char *peer,
			     struct error *error)
{
	char needed[BYTES_TEXT], there[BYTES_TEXT];
	uint64_t total;
	int r = device_total(id, &total, error);

	if (r < 0 || bytes <= total)
		return r;
	return error_set(error, -ENOSPC, offer->world > 1 ? REMEDY_RANKS : REMEDY,
			 "%s offers %s of %s for %s, which has %s in all: nothing was taken", peer,
			 bytes_format(bytes, needed), offer->ref, id, bytes_format(total, there));
}

/* The peer may tell any numbers, so their sum may overflow. */
static uint64_t offer_bytes(const struct peer_offer *offer)
{
	uint64_t all = 0;

	for (uint32_t i = 0; i < offer->world; i++) {
		if (__builtin_add_overflow(all, offer->parts[i].bytes, &all))
			return UINT64_MAX;
	}
	return all;
}

int peer_offer_fits(const struct job_load_params *params, const struct peer_offer *offer, const char *peer,
		    struct error *error)
{
	const uint64_t all = offer_bytes(offer);
	int r = 0;

	if (offer->world != 1 && params->wish.devices.count != 1 && params->wish.devices.count != offer->world)
		return error_set(error, -EINVAL, "name one device for each rank, or one for all of them",
				 "%s has %u ranks, but %u devices are named", params->wish.source, offer->world,
				 params->wish.devices.count);
	for (size_t i = 0; r == 0 && i < params->wish.devices.count; i++) {
		uint64_t bytes =
			params->wish.devices.count == 1 ? all : offer->parts[offer->world > 1 ? i : 0].bytes;

		r = offer_fits_device(params->wish.devices.items[i], bytes, offer, peer, error);
	}
	return r;
}

/* ---- indexes --------------------------------------------------------------- */

static int index_is_wrong(const struct asking *asking, uint32_t rank, const char *why)
{
	return error_set(asking->error, -EBADMSG, NULL, "%s sent a wrong index of rank %u: %s",
			 link_peer(asking->link), rank, why);
}

/* Takes over the segments of the index, which must be those that find told. */
static int take_segments(const struct asking *asking, uint32_t rank, struct peer_offer_part *part)
{
	const struct index_header *header = part->view.header;
	uint64_t bytes = 0;
	char why[200];

	if (header->rank != rank || header->world != asking->offer->world) {
		snprintf(why, sizeof(why), "it is of rank %u of %u, not of %u of %u", header->rank,
			 header->world, rank, asking->offer->world);
		return index_is_wrong(asking, rank, why);
	}
	if (header->segment_count != part->segment_count) {
		snprintf(why, sizeof(why), "it names %u segments, the peer named %u", header->segment_count,
			 part->segment_count);
		return index_is_wrong(asking, rank, why);
	}
	for (uint32_t i = 0; i < part->segment_count; i++) {
		part->segment_bytes[i] = part->view.segments[i].bytes;
		if (part->segment_bytes[i] > SEGMENT_BYTES_MAX)
			return index_is_wrong(asking, rank, "it has a segment that no device holds");
		if (part->segment_bytes[i] == 0 || part->segment_bytes[i] > part->bytes - bytes)
			return index_is_wrong(asking, rank, "its segments have more bytes than the peer said");
		bytes += part->segment_bytes[i];
		part->first[i + 1] = part->first[i] + sums_piece_count(part->segment_bytes[i]);
	}
	return bytes == part->bytes
		       ? 0
		       : index_is_wrong(asking, rank, "its segments have fewer bytes than the peer said");
}

static int take_index(const struct asking *asking, uint32_t rank, struct peer_offer_part *part)
{
	const struct peer_index_params params = {.version = &asking->offer->version, .rank = rank};
	struct peer_index_result result;
	struct peer_message message;
	struct error why;
	int r = peer_call(asking->link, &form_peer_index, &params, &result, &message, asking->error);

	if (r < 0)
		return r;
	peer_message_clear(&message);
	if (result.bytes != part->index_bytes)
		return index_is_wrong(asking, rank, "it has another size than the peer said before");
	part->index = malloc(part->index_bytes);
	if (!part->index)
		return offer_no_memory(asking->error);
	r = link_read(asking->link, part->index, part->index_bytes, LINK_SILENCE_MS, asking->error);
	if (r < 0)
		return r;
	r = index_open(part->index, part->index_bytes, &part->view, &why);
	if (r == -ENOMEM)
		return offer_no_memory(asking->error);
	if (r < 0)
		return index_is_wrong(asking, rank, why.message);
	return take_segments(asking, rank, part);
}

/* ---- sums ------------------------------------------------------------------ */

static int receive_sums(const struct asking *asking, uint32_t rank, struct peer_offer_part *part,
			uint32_t segment)
{
	const struct peer_sums_params params = {&asking->offer->version, rank, segment, 0};
	uint64_t left = part->first[segment + 1] - part->first[segment];
	struct sum *to = part->sums + part->first[segment];
	struct peer_sums_result result;
	struct peer_message message;
	int r = peer_call(asking->link, &form_peer_sums, &params, &result, &message, asking->error);

	if (r < 0)
		return r;
	peer_message_clear(&message);
	if (result.pieces != left)
		return error_set(asking->error, -EBADMSG, NULL,
				 "%s has sums of %" PRIu64
				 " pieces of segment %u of rank %u, which has %" PRIu64,
				 link_peer(asking->link), result.pieces, segment, rank, left);
	while (r == 0 && left > 0) {
		uint64_t now = left < SUMS_AT_ONCE ? left : SUMS_AT_ONCE;

		r = link_read(asking->link, to, now * sizeof(*to), LINK_SILENCE_MS, asking->error);
		if (r == 0)
			r = asking->look(asking->user_data);
		to += now;
		left -= now;
	}
	return r;
}

static int take_sums(const struct asking *asking, uint32_t rank, struct peer_offer_part *part, struct sum *ret)
{
	uint64_t pieces = part->first[part->segment_count];
	struct sum index, segments[PART_SEGMENTS_MAX];
	int r = 0;

	part->sums = calloc(pieces + 1, sizeof(*part->sums));
	if (!part->sums)
		return offer_no_memory(asking->error);
	for (uint32_t i = 0; r == 0 && i < part->segment_count; i++)
		r = receive_sums(asking, rank, part, i);
	if (r < 0)
		return r;
	r = sums_plain(part->index, part->index_bytes, &index);
	for (uint32_t i = 0; r == 0 && i < part->segment_count; i++)
		r = sums_segment(part->sums + part->first[i], part->first[i + 1] - part->first[i],
				 &segments[i]);
	if (r == 0)
		r = sums_part(&index, segments, part->segment_count, ret);
	return r < 0 ? offer_no_memory(asking->error) : 0;
}

static int take_parts(struct asking *asking)
{
	struct peer_offer *offer = asking->offer;
	struct sum sums[PARTS_PER_VERSION_MAX];
	int r = 0;

	for (uint32_t i = 0; r == 0 && i < offer->world; i++) {
		r = take_index(asking, i, &offer->parts[i]);
		if (r == 0)
			r = take_sums(asking, i, &offer->parts[i], &sums[i]);
		offer->bytes += offer->parts[i].bytes;
	}
	if (r == 0 && sums_fingerprint(sums, offer->world, &offer->fingerprint) < 0)
		return offer_no_memory(asking->error);
	return r;
}

int peer_offer_take(struct link *link, const struct peer_wish *wish, peer_look_fn *look, void *user_data,
		    struct peer_offer *ret, struct error *error)
{
	struct peer_offer offer = {0};
	struct asking asking = {link, look, user_data, &offer, error};
	int r = offer_find(&asking, wish->ref);

	if (r == 0 && wish->params)
		r = peer_offer_fits(wish->params, &offer, link_peer(link), error);
	else if (r == 0 && offer_bytes(&offer) != wish->bytes)
		r = error_set(error, -ESTALE, NULL,
			      "%s offers %s with %" PRIu64 " bytes, the version had %" PRIu64, link_peer(link),
			      offer.ref, offer_bytes(&offer), wish->bytes);
	if (r == 0)
		r = take_parts(&asking);
	if (r < 0)
		peer_offer_clear(&offer);
	else
		*ret = offer;
	return r;
}

void peer_offer_clear(struct peer_offer *offer)
{
	for (uint32_t i = 0; i < offer->world; i++) {
		free(offer->parts[i].index);
		free(offer->parts[i].sums);
	}
	free(offer->parts);
	*offer = (struct peer_offer){0};
}

/* ---- comparing ------------------------------------------------------------- */

static bool same_sizes(const struct peer_offer *offer, const struct peer_find_result *found)
{
	bool same = found->piece_bytes == SUMS_PIECE_BYTES && found->world == offer->world &&
		    found->parts.count == offer->world;

	for (uint32_t i = 0; same && i < offer->world; i++) {
		const struct peer_part *part = &found->parts.items[i];

		same = part->rank == i && part->bytes == offer->parts[i].bytes &&
		       part->segments == offer->parts[i].segment_count &&
		       part->index_bytes == offer->parts[i].index_bytes;
	}
	return same;
}

int peer_offer_find(struct link *link, const struct peer_offer *offer, const char *ref, struct peer_found *ret,
		    struct error *error)
{
	const struct peer_find_params params = {.ref = ref};
	struct peer_find_result found;
	struct peer_message message;
	char fingerprint[SUM_TEXT];
	int r = peer_call(link, &form_peer_find, &params, &found, &message, error);

	if (r < 0)
		return r;
	sum_format(&offer->fingerprint, fingerprint);
	if (!same_sizes(offer, &found) || (found.fingerprint && strcmp(found.fingerprint, fingerprint) != 0))
		r = error_set(error, -ESTALE, NULL, "%s has another version under the name %s", link_peer(link),
			      ref);
	if (r == 0)
		ret->version = *found.version;
	for (uint32_t i = 0; r == 0 && i < found.parts.count; i++)
		snprintf(ret->devices[i], sizeof(ret->devices[i]), "%s", found.parts.items[i].device);
	peer_message_clear(&message);
	return r;
}

int peer_offer_expect(const struct peer_offer *offer, const char *expected, const char *peer,
		      struct error *error)
{
	char text[SUM_TEXT];
	struct sum sum;

	if (!expected)
		return 0;
	if (sum_parse(expected, &sum) < 0)
		return error_set(error, -EINVAL, "64 hexadecimal digits, as gpuwmctl ls --peers shows them",
				 "\"%.100s\" is no fingerprint", expected);
	sum_format(&offer->fingerprint, text);
	if (!sum_equal(&sum, &offer->fingerprint))
		return error_set(error, -EBADMSG, "nothing was taken",
				 "%s offers %.300s with the fingerprint %s, expected was %.64s", peer,
				 offer->ref, text, expected);
	return 0;
}
