#include "piece.h"

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
