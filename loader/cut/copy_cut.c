#include "copy_cut.h"

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

static bool has_rows(const struct cut_tensor *way, const struct piece_span *span)
{
	return cut_is_split(way) && span->offset / way->row != (span->offset + span->bytes - 1) / way->row;
}

bool copy_cut_gathers(const struct hand *hand, size_t bytes)
{
	const struct copy *copy = hand->crew->copy;
	struct spot spot = hand->spot;

	while (bytes > 0) {
		const struct piece_span *span = &hand->piece.spans[spot.span];

		if (has_rows(&copy->cut->tensors[span->tensor], span))
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

/* Returns where a rank's bytes of a span begin in the ring's buffer, from the span's beginning on. */
static uint64_t lead(const struct stretch *s, uint32_t rank)
{
	if (!cut_is_split(s->way))
		return 0;
	return cut_below(s->way, rank, s->span->offset + s->span->bytes) -
	       cut_below(s->way, rank, s->span->offset);
}

static char *place_in_slot(const struct hand *hand, const struct stretch *s, const struct portion *portion)
{
	return hand_in_slot(hand, s->span_at) + lead(s, portion->rank) + portion->offset -
	       cut_before(s->way, portion->rank, s->span->offset);
}

static char *place_in_target(const struct cut *cut, const struct copy_target *target,
			     const struct portion *portion)
{
	return (char *)target->addresses[portion->share - cut->ranks[portion->rank].first] + portion->offset;
}

/* Whether an earlier target has the very same bytes: their digest, and in the ring their place, is
 * the same. */
static bool is_repeated(const struct stretch *s, size_t target)
{
	return target > 0 && !cut_is_split(s->way) && s->way->only == CUT_EVERY_RANK;
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

/* Returns where the portion's bytes lie one behind the other. If they do not yet, packs them. */
static const char *gather(const struct hand *hand, const struct stretch *s, const struct portion *portion)
{
	const char *range = s->in_slot ? place_in_slot(hand, s, portion) : range_of(s, portion);

	if (range)
		return range;
	cut_pack(s->way, portion->rank, s->offset, s->from, s->bytes, hand->own);
	return hand->own;
}

static void put_in_slot(const struct hand *hand, const struct stretch *s, const struct portion *portion,
			const char *from)
{
	if (!s->in_slot)
		memcpy(place_in_slot(hand, s, portion), from, portion->bytes);
}

static int put_in_target(const struct hand *hand, const struct copy_target *host, const struct portion *portion,
			 const char *from, struct error *error)
{
	if (!host->addresses)
		return 0;
	return hand_put(hand, host, place_in_target(hand->crew->copy->cut, host, portion), from, portion->bytes,
			error);
}

static int deliver_to(struct hand *hand, const struct stretch *s, size_t target, struct error *error)
{
	struct crew *crew = hand->crew;
	const struct copy *copy = crew->copy;
	bool repeated = is_repeated(s, target);
	struct portion portion;
	const char *from;
	int r = 0;

	if (!portion_of(copy->cut, s, copy->targets[target].rank, &portion) || (repeated && copy->ring))
		return 0;
	from = gather(hand, s, &portion);
	if (!repeated)
		r = share_sums_add(&crew->shares, portion.share, portion.offset, from, portion.bytes, error);
	if (r == 0 && copy->ring)
		put_in_slot(hand, s, &portion, from);
	else if (r == 0)
		r = put_in_target(hand, &copy->targets[target], &portion, from, error);
	return r;
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

/* The first target that has a tensor has digested it. */
static uint32_t digested_share(const struct crew *crew, const struct cut_share *share, uint32_t position)
{
	const struct copy *copy = crew->copy;
	const struct cut_tensor *way = &copy->cut->tensors[share->tensor];

	if (cut_is_split(way) || way->only != CUT_EVERY_RANK)
		return position;
	return cut_position(copy->cut, share->tensor, copy->targets[0].rank);
}

void copy_cut_digests(const struct crew *crew, struct digest *ret)
{
	const struct copy *copy = crew->copy;

	for (size_t i = 0; i < copy->target_count; i++) {
		const struct cut_rank *rank = &copy->cut->ranks[copy->targets[i].rank];

		for (size_t k = rank->first; k < rank->first + rank->count; k++)
			ret[k] = share_sums_final(&crew->shares,
						  digested_share(crew, &copy->cut->shares[k], (uint32_t)k));
	}
}
