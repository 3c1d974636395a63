#include "reader.h"

#include "../cut/cut.h"

#define PAGE 4096

bool piece_next(const struct source *source, size_t chunk, struct piece_cursor *cursor, struct piece *ret)
{
	uint64_t end = 0, at = 0;

	ret->span_count = 0;
	for (; cursor->tensor < source->tensor_count && ret->span_count < PIECE_SPANS_MAX; cursor->tensor++) {
		const struct source_tensor *tensor = &source->tensors[cursor->tensor];
		uint64_t begin = tensor->offset + cursor->offset, left = tensor->bytes - cursor->offset, bytes;

		if (tensor->bytes == 0)
			continue;
		if (ret->span_count == 0) {
			ret->file = tensor->file;
			ret->offset = at = begin;
			end = begin + chunk;
			if (end / PAGE * PAGE >= begin + 8)
				end = end / PAGE * PAGE;
		} else if (tensor->file != ret->file || begin != at) {
			break;
		}
		bytes = left <= end - at ? left : (end - at) / 8 * 8;
		if (bytes == 0)
			break;
		ret->spans[ret->span_count++] =
			(struct piece_span){(uint32_t)cursor->tensor, cursor->offset, bytes};
		at += bytes;
		cursor->offset += bytes;
		if (cursor->offset < tensor->bytes)
			break;
		cursor->offset = 0;
	}
	ret->bytes = (size_t)(at - ret->offset);
	return ret->span_count > 0;
}

/* ---- of a source that is cut --------------------------------------------- */

/* Whether each rank's run has a piece of its own. */
static bool is_wide(const struct cut_tensor *tensor, size_t chunk)
{
	return cut_is_split(tensor) && tensor->run >= chunk;
}

static bool is_wanted_by(const struct cut_tensor *tensor, const bool *wanted)
{
	return tensor->row > 0 && (tensor->only == CUT_EVERY_RANK || wanted[tensor->only]);
}

/* Takes the piece number cursor->offset of a wide tensor, if there is one: the first piece of each
 * rank's run, then the second of each, and so on, row by row. */
static bool next_of_wide(const struct cut *cut, const bool *wanted, size_t chunk, struct piece_cursor *cursor,
			 struct piece *ret)
{
	const struct source_tensor *whole = &cut->source->tensors[cursor->tensor];
	const struct cut_tensor *tensor = &cut->tensors[cursor->tensor];
	uint64_t of_run = (tensor->run + chunk - 1) / chunk;
	uint64_t bytes = ((tensor->run + of_run - 1) / of_run + 7) / 8 * 8; /* at most chunk */
	uint64_t count = whole->bytes / tensor->row * of_run * cut->rank_count;

	while (cursor->offset < count) {
		uint64_t number = cursor->offset++, rank = number % cut->rank_count;
		uint64_t row = number / cut->rank_count / of_run;
		uint64_t begin = number / cut->rank_count % of_run * bytes, left = tensor->run - begin;
		uint64_t offset = row * tensor->row + rank * tensor->run + begin;

		if (!wanted[rank])
			continue;
		/* Not the whole struct: it has room for many spans, and all readers wait. */
		ret->file = whole->file;
		ret->offset = whole->offset + offset;
		ret->bytes = left < bytes ? left : bytes;
		ret->span_count = 1;
		ret->spans[0] = (struct piece_span){(uint32_t)cursor->tensor, offset, ret->bytes};
		return true;
	}
	return false;
}

/* Takes a piece of the neighbours that are read in the file's order, from the cursor on. */
static bool next_of_others(const struct cut *cut, const bool *wanted, size_t chunk, struct piece_cursor *cursor,
			   struct piece *ret)
{
	struct source some = *cut->source;
	size_t most = cursor->tensor + PIECE_SPANS_MAX, end = cursor->tensor;

	while (end < some.tensor_count && end < most && is_wanted_by(&cut->tensors[end], wanted) &&
	       !is_wide(&cut->tensors[end], chunk))
		end++;
	some.tensor_count = end;
	return piece_next(&some, chunk, cursor, ret);
}

bool piece_next_cut(const struct cut *cut, const bool *wanted, size_t chunk, struct piece_cursor *cursor,
		    struct piece *ret)
{
	for (; cursor->tensor < cut->source->tensor_count;
	     *cursor = (struct piece_cursor){cursor->tensor + 1, 0}) {
		const struct cut_tensor *tensor = &cut->tensors[cursor->tensor];

		if (!is_wanted_by(tensor, wanted))
			continue;
		if (!is_wide(tensor, chunk))
			return next_of_others(cut, wanted, chunk, cursor, ret);
		if (next_of_wide(cut, wanted, chunk, cursor, ret))
			return true;
	}
	return false;
}
