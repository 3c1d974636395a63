#include "piece.h"

#define PAGE 4096

static uint64_t end_wanted(uint64_t begin, size_t chunk)
{
	uint64_t end = begin + chunk, page = end / PAGE * PAGE;

	return page >= begin + 8 ? page : end;
}

/* Returns how many of `left` bytes go into a piece that has room for `room`. */
static uint64_t span_bytes(uint64_t left, uint64_t room)
{
	return left <= room ? left : room / 8 * 8;
}

bool piece_next(const struct source *source, size_t chunk, struct piece_cursor *cursor, struct piece *ret)
{
	uint64_t end = 0, at = 0;

	ret->span_count = 0;
	for (; cursor->tensor < source->tensor_count && ret->span_count < PIECE_SPANS_MAX; cursor->tensor++) {
		const struct source_tensor *tensor = &source->tensors[cursor->tensor];
		uint64_t begin = tensor->offset + cursor->offset, bytes;

		if (tensor->bytes == 0)
			continue;
		if (ret->span_count == 0) {
			ret->file = tensor->file;
			ret->offset = at = begin;
			end = end_wanted(begin, chunk);
		} else if (tensor->file != ret->file || begin != at) {
			break;
		}
		bytes = span_bytes(tensor->bytes - cursor->offset, end - at);
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
