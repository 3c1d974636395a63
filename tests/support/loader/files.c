#include "files.h"

#include <dirent.h>
#include <fcntl.h>
#include <ftw.h>
#include <stdarg.h>

char folder[PATH_MAX / 4];

/* The process that made the folder. Its children leave the folder alone. */
static pid_t folder_owner;

/* Criterion calls no fini after a skip. */
static void folder_remove_at_exit(void)
{
	if (getpid() == folder_owner)
		folder_remove();
}

void folder_make(void)
{
	if (!folder_owner)
		atexit(folder_remove_at_exit);
	folder_owner = getpid();
	snprintf(folder, sizeof(folder), "%s/gpuwm-test-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
	cr_assert(mkdtemp(folder));
}

static int folder_remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st;
	(void)type;
	(void)walk;
	return remove(path);
}

void folder_remove(void)
{
	nftw(folder, folder_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *in_folder(const char *format, ...)
{
	static char paths[4][PATH_MAX];
	static int next;
	char *path = paths[next++ % 4];
	int used = snprintf(path, PATH_MAX, "%s/", folder);
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(path + used, (size_t)(PATH_MAX - used), format, arguments);
	va_end(arguments);
	return path;
}

void write_bytes(const char *path, const void *data, size_t bytes)
{
	FILE *file = fopen(path, "we");

	cr_assert(file, "%s", path);
	cr_assert_eq(fwrite(data, 1, bytes, file), bytes);
	fclose(file);
}

void write_safetensors(const char *path, const char *header, size_t data_bytes)
{
	size_t length = strlen(header), bytes = 8 + length + data_bytes;
	uint8_t *data = malloc(bytes);

	for (int i = 0; i < 8; i++)
		data[i] = (uint8_t)((uint64_t)length >> (8 * i));
	memcpy(data + 8, header, length);
	for (size_t i = 0; i < data_bytes; i++)
		data[8 + length + i] = (uint8_t)i;
	write_bytes(path, data, bytes);
	free(data);
}
