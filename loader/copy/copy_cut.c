/* What a copy's readers do differently if the source is cut (cut.h).
 *
 *   of a piece that lies in one row of its tensor:  as in the file, so each rank's run is one range
 *   of a piece with several rows:                   file → own buffer → the ranks' runs, one rank
 *                                                   behind the other → the ring's buffer
 *
 * So each rank gets at most one range of each span, whatever the rows' size: lanes take few large copies. On host, runs go from
 * the reader's own buffer to their place. What a reader takes at once stays in its CPU's cache until it is digested. */
#include "copy_internal.h"

#include <string.h>

/* Bytes of one tensor in a piece. */
struct stretch {
	uint32_t tensor;
	const struct cut_tensor *way;
	const struct piece_span *span; /* that they are part of */
	size_t span_at; /* where the span begins in the piece */
	uint64_t offset; /* of the bytes in the tensor */
	size_t bytes;
	const char *from; /* where they lie */
	bool in_slot; /* that is their place in the ring's buffer already */
};

/* The same bytes, as far as a rank has them. */
struct portion {
	uint32_t rank, share; /* share: its position in the cut */
	uint64_t offset, bytes; /* offset in the share */
};

bool copy_cut_gathers(const struct hand *hand, size_t bytes)
{
	const struct copy *copy = hand->crew->copy;
	struct spot spot = hand->spot;

	while (bytes > 0) {
		const struct piece_span *span = &hand->piece.spans[spot.span];
		const struct cut_tensor *way = &copy->cut->tensors[span->tensor];

		if (cut_is_split(way) && span->offset / way->row != (span->offset + span->bytes - 1) / way->row)
			return true;
		bytes -= spot_advance(&hand->piece, &spot, bytes);
	}
	return false;
}

/* Returns whether the rank has any of the bytes. */
static bool portion_of(const struct cut *cut, const struct stretch *s, uint32_t rank, struct portion *ret)
{
	uint32_t share = cut_position(cut, s->tensor, rank);

	if (share == CUT_NO_SHARE)
		return false;
	*ret = (struct portion){
		.rank = rank,
		.share = share,
		.offset = cut_before(s->way, rank, s->offset),
	};
	ret->bytes = cut_before(s->way, rank, s->offset + s->bytes) - ret->offset;
	return ret->bytes > 0;
}

/* Returns where the portion lies in the ring's buffer, which has a rank's bytes of a span behind those
 * of the ranks below it. */
static char *place_in_slot(const struct hand *hand, const struct stretch *s, const struct portion *portion)
{
	const struct piece_span *span = s->span;
	uint32_t rank = portion->rank;
	uint64_t below = 0;

	if (cut_is_split(s->way))
		below = cut_below(s->way, rank, span->offset + span->bytes) -
			cut_below(s->way, rank, span->offset);
	return hand_in_slot(hand, s->span_at) + below + portion->offset -
	       cut_before(s->way, rank, span->offset);
}

/* Returns where the portion lies if it is one range of the stretch, or NULL. */
static const char *range_of(const struct stretch *s, const struct portion *portion)
{
	uint64_t at, begin = portion->rank * s->way->run;

	if (!cut_is_split(s->way))
		return s->from;
	at = s->offset % s->way->row;
	if (at + s->bytes > s->way->row)
		return NULL;
	return at < begin ? s->from + (begin - at) : s->from;
}

static int deliver_to(struct hand *hand, const struct stretch *s, size_t target, struct error *error)
{
	struct crew *crew = hand->crew;
	const struct copy *copy = crew->copy;
	const struct cut *cut = copy->cut;
	const struct copy_target *to = &copy->targets[target];
	/* An earlier target has the very same bytes: their digest, and in the ring their place, is the same. */
	bool repeated = target > 0 && !cut_is_split(s->way) && s->way->only == CUT_EVERY_RANK;
	struct portion portion;
	const char *from;
	int r = 0;

	if (!portion_of(cut, s, to->rank, &portion) || (repeated && copy->ring))
		return 0;
	from = s->in_slot ? place_in_slot(hand, s, &portion) : range_of(s, &portion);
	if (!from) {
		cut_pack(s->way, portion.rank, s->offset, s->from, s->bytes, hand->own);
		from = hand->own;
	}
	if (!repeated)
		r = share_sums_add(&crew->shares, portion.share, portion.offset, from, portion.bytes, error);
	if (r < 0)
		return r;
	if (copy->ring) {
		if (!s->in_slot)
			memcpy(place_in_slot(hand, s, &portion), from, portion.bytes);
		return 0;
	}
	if (!to->addresses)
		return 0;
	return hand_put(hand, to,
			(char *)to->addresses[portion.share - cut->ranks[portion.rank].first] + portion.offset,
			from, portion.bytes, error);
}

int copy_cut_deliver(struct hand *hand, const char *from, size_t bytes, struct error *error)
{
	struct crew *crew = hand->crew;
	const struct copy *copy = crew->copy;
	bool in_slot = copy->ring && from == hand_in_slot(hand, hand->done);
	size_t at = hand->done;
	int r = 0;

	hand->done += bytes;
	__atomic_fetch_add(&crew->done, bytes, __ATOMIC_RELAXED);
	while (r == 0 && bytes > 0) {
		const struct piece_span *span = &hand->piece.spans[hand->spot.span];
		size_t some = bytes < COPY_CUT_STEP_BYTES ? bytes : COPY_CUT_STEP_BYTES;
		struct spot spot = hand->spot;
		struct stretch s = {
			.tensor = span->tensor,
			.way = &copy->cut->tensors[span->tensor],
			.span = span,
			.span_at = at - spot.offset,
			.offset = span->offset + spot.offset,
			.bytes = spot_advance(&hand->piece, &hand->spot, some),
			.from = from,
			.in_slot = in_slot,
		};

		for (size_t i = 0; r == 0 && i < copy->target_count; i++)
			r = deliver_to(hand, &s, i, error);
		from += s.bytes;
		at += s.bytes;
		bytes -= s.bytes;
	}
	return r;
}

static int send_to(const struct hand *hand, size_t target, struct error *error)
{
	const struct copy *copy = hand->crew->copy;
	const struct cut *cut = copy->cut;
	uint32_t rank = copy->targets[target].rank;
	struct lane_span spans[PIECE_SPANS_MAX];
	size_t count = 0, at = 0;

	for (uint32_t i = 0; i < hand->piece.span_count; i++) {
		const struct piece_span *span = &hand->piece.spans[i];
		const struct stretch s = {
			.tensor = span->tensor,
			.way = &cut->tensors[span->tensor],
			.span = span,
			.span_at = at,
			.offset = span->offset,
			.bytes = span->bytes,
		};
		struct portion portion;

		at += span->bytes;
		if (portion_of(cut, &s, rank, &portion))
			spans[count++] = (struct lane_span){
				.from = place_in_slot(hand, &s, &portion),
				.tensor = portion.share - (uint32_t)cut->ranks[rank].first,
				.offset = portion.offset,
				.bytes = portion.bytes,
			};
	}
	return count > 0 ? lanes_send_to(hand->lanes, target, hand->slot, spans, count, error) : 0;
}

int copy_cut_send(const struct hand *hand, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < hand->crew->copy->target_count; i++)
		r = send_to(hand, i, error);
	return r;
}

void copy_cut_digests(const struct crew *crew, struct digest *ret)
{
	const struct copy *copy = crew->copy;
	const struct cut *cut = copy->cut;

	for (size_t i = 0; i < copy->target_count; i++) {
		const struct cut_rank *rank = &cut->ranks[copy->targets[i].rank];

		for (size_t k = rank->first; k < rank->first + rank->count; k++) {
			uint32_t tensor = cut->shares[k].tensor, position = (uint32_t)k;

			/* The first target digested what every rank has. */
			if (!cut_is_split(&cut->tensors[tensor]) && cut->tensors[tensor].only == CUT_EVERY_RANK)
				position = cut_position(cut, tensor, copy->targets[0].rank);
			ret[k] = share_sums_final(&crew->shares, position);
		}
	}
}
