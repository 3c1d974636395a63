#include "format.h"

#include "source.h"
#include "../../base/text.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

void format_content_clear(struct format_content *content)
{
	free(content->tensors);
	free(content->metadata);
	free(content->dims);
	free(content->texts);
	memset(content, 0, sizeof(*content));
}

bool format_name_ends(const char *name, const char *end)
{
	return end && text_ends(name, end);
}

const struct format *format_of_name(const char *name)
{
	size_t i = 0;

	while (formats[i] && !format_name_ends(name, formats[i]->file_end))
		i++;
	return formats[i];
}

bool format_is_index(const char *name)
{
	size_t i = 0;

	while (formats[i] && !format_name_ends(name, formats[i]->index_end))
		i++;
	return formats[i] != NULL;
}

int format_read(const struct source_file *file, struct format_content *ret, struct error *error)
{
	struct format_head head = {.file_bytes = (uint64_t)file->stat.st_size};
	const struct format *format;
	const struct foreign *foreign;
	size_t i = 0;
	int r;

	head.count = head.file_bytes < sizeof(head.bytes) ? head.file_bytes : sizeof(head.bytes);
	r = source_file_read_at(file, head.bytes, head.count, 0, error);
	if (r < 0)
		return r;
	while (formats[i] && !formats[i]->begins(&head))
		i++;
	format = formats[i];
	foreign = format ? NULL : foreign_format(file->path, head.bytes, head.count);
	if (foreign)
		return error_set(error, -ENOTSUP, foreign->remedy, "%s is %s, no " FORMAT_NAMES " file",
				 file->path, foreign->what);
	/* Nothing knows the file: the format that its name promises says what it misses. */
	if (!format)
		format = format_of_name(file->path);
	return (format ? format : formats[0])->read(file, &head, ret, error);
}
