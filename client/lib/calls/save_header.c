#include "save.h"

#include "../json.h"

#include "../../../proto/index/dtype.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Readers of PyTorch checkpoints refuse a file that does not say this. */
#define FORMAT_KEY "format"
#define FORMAT_VALUE "pt"

static void header_put_pair(FILE *out, const char *key, const char *value, bool *begun)
{
	fputc(*begun ? ',' : '{', out);
	json_put_text(out, key, strlen(key));
	fputc(':', out);
	json_put_text(out, value, strlen(value));
	*begun = true;
}

static void header_put_texts(FILE *out, const struct save_file *file)
{
	const struct index_view *view = save_view(file->mapping);
	const char *format = index_metadata(view, FORMAT_KEY);
	bool begun = false;

	fputs("{\"__metadata__\":", out);
	header_put_pair(out, FORMAT_KEY, format ? format : FORMAT_VALUE, &begun);
	for (uint32_t i = 0; file->first && i < view->header->metadata_count; i++) {
		const char *key = view->heap + view->metadata[i].key;

		if (strcmp(key, FORMAT_KEY) != 0)
			header_put_pair(out, key, view->heap + view->metadata[i].value, &begun);
	}
	fputc('}', out);
}

/* Ends a text in memory, which is the caller's if all of it was written. */
static int text_end(const struct save *save, FILE *out, char **text)
{
	bool whole = out && !ferror(out);

	if (out && fclose(out) != 0)
		whole = false;
	if (whole && *text)
		return 0;
	free(*text);
	*text = NULL;
	return error_set(save->error, -ENOMEM, NULL, "out of memory for the names of %zu tensors",
			 save->tensor_count);
}

/* The data begins at a multiple of 8 bytes: a header ends with blanks. */
int save_header(const struct save *save, const struct save_file *file, char **ret, size_t *ret_bytes)
{
	char *text = NULL;
	size_t bytes = 0;
	uint64_t length = 0;
	FILE *out = open_memstream(&text, &bytes);
	int r;

	if (!out)
		return text_end(save, NULL, &text);
	fwrite(&length, sizeof(length), 1, out);
	header_put_texts(out, file);
	for (size_t i = 0; i < file->count; i++) {
		const struct gpuwm_tensor *tensor = &file->tensors[i].tensor;
		const uint64_t at = file->tensors[i].at;

		fputc(',', out);
		json_put_text(out, tensor->name, strlen(tensor->name));
		fprintf(out, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name(tensor->dtype));
		for (uint32_t k = 0; k < tensor->ndim; k++)
			fprintf(out, "%s%" PRIu64, k ? "," : "", tensor->shape[k]);
		fprintf(out, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at, at + tensor->bytes);
	}
	fputc('}', out);
	fflush(out);
	for (size_t used = bytes; used % 8; used++)
		fputc(' ', out);
	r = text_end(save, out, &text);
	if (r < 0)
		return r;
	length = bytes - sizeof(length);
	memcpy(text, &length, sizeof(length)); /* little-endian, as all of gpuwm */
	*ret = text;
	*ret_bytes = bytes;
	return 0;
}

int save_index(const struct save *save, char **ret, size_t *ret_bytes)
{
	char *text = NULL;
	size_t bytes = 0;
	FILE *out = open_memstream(&text, &bytes);
	bool begun = false;
	int r;

	if (!out)
		return text_end(save, NULL, &text);
	fprintf(out, "{\"metadata\":{\"total_size\":%" PRIu64 "},\"weight_map\":", save->bytes);
	for (size_t i = 0; i < save->file_count; i++)
		for (size_t k = 0; k < save->files[i].count; k++)
			header_put_pair(out, save->files[i].tensors[k].tensor.name, save->files[i].name,
					&begun);
	fputs("}}\n", out);
	r = text_end(save, out, &text);
	if (r < 0)
		return r;
	*ret = text;
	*ret_bytes = bytes;
	return 0;
}
