#include "ini_file.h"

#include <errno.h>
#include <ini.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct reading {
	const struct ini_file *file;
	FILE *stream;
	int line;
	int code;
	int failed; /* the errno of a read that failed */
	struct error error;
};

/* inih splits a line that is longer than its buffer into two lines, so such a line is refused
 * here. */
static char *read_line(char *text, int size, void *user)
{
	struct reading *reading = user;
	bool has_zero, is_cut;

	/* fgets does not return a length. So the buffer has no zero byte before, and the last one
	 * afterwards is the one that fgets wrote. */
	memset(text, '\n', (size_t)size);
	if (reading->code < 0)
		return NULL;
	if (!fgets(text, size, reading->stream)) {
		reading->failed = errno;
		return NULL;
	}
	reading->line++;
	has_zero = memrchr(text, '\0', (size_t)size) != text + strlen(text);
	is_cut = !strchr(text, '\n') && !feof(reading->stream);
	if (has_zero || is_cut) {
		reading->code = error_set(&reading->error, -EINVAL, reading->file->too_long,
					  "the line has more than %d bytes, or a zero byte", size - 2);
		return NULL;
	}
	return text;
}

static int take_key(void *user, const char *section, const char *key, const char *value)
{
	struct reading *reading = user;

	reading->code = reading->file->take(reading->file->user, section, key, value, &reading->error);
	return reading->code == 0;
}

static int unreadable(const struct ini_file *file, int code, int number, struct error *error)
{
	char detail[128];

	snprintf(detail, sizeof(detail), "it is read as uid %u: change its owner, group or mode",
		 (unsigned)geteuid());
	return error_set(error, code, number == EACCES ? detail : file->missing, "configuration %s: %s",
			 file->path, strerror(number));
}

int ini_file_read(const struct ini_file *file, struct error *error)
{
	struct reading reading = {.file = file, .stream = fopen(file->path, "re")};
	int wrong_line;

	if (!reading.stream)
		return unreadable(file, -errno, errno, error);
	wrong_line = ini_parse_stream(read_line, &reading, take_key, &reading);
	if (reading.code == 0 && ferror(reading.stream)) {
		fclose(reading.stream);
		return unreadable(file, -EIO, reading.failed, error);
	}
	fclose(reading.stream);
	/* Of a line that inih does not understand and the line that stopped it, the error names the
	 * first. */
	if (wrong_line > 0 && (reading.code == 0 || wrong_line < reading.line)) {
		reading.line = wrong_line;
		reading.code =
			error_set(&reading.error, -EINVAL, "correct the line, or begin it with ; as a comment",
				  "this is neither [section] nor key = value");
	}
	if (reading.code < 0)
		return error_set(error, reading.code, reading.error.detail, "%s:%d: %s", file->path,
				 reading.line, reading.error.message);
	return 0;
}
