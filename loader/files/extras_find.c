#include "extras.h"

#include "format.h"
#include "name_list.h"
#include "roots.h"
#include "../../base/beneath.h"
#include "../../base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SNAPSHOTS "snapshots"
#define BLOBS "blobs"
#define LOOK (O_PATH | O_CLOEXEC)

/* The files that get their room before others, in this order: without them nobody can make the model or its tokenizer. */
static const char *const known[] = {
	"config.json",
	"model_index.json",
	"modules.json",
	"generation_config.json",
	"tokenizer_config.json",
	"special_tokens_map.json",
	"added_tokens.json",
	"chat_template.jinja",
	"chat_template.json",
	"preprocessor_config.json",
	"video_preprocessor_config.json",
	"processor_config.json",
	"tokenizer.json",
	"tekken.json",
	"vocab.json",
	"vocab.txt",
	"merges.txt",
	"tokenizer.model",
	"spiece.model",
	"sentencepiece.bpe.model",
	"source.spm",
	"target.spm",
};
#define KNOWN_COUNT (sizeof(known) / sizeof(known[0]))

static bool is_known(const char *name)
{
	size_t i = 0;

	while (i < KNOWN_COUNT && strcmp(known[i], name) != 0)
		i++;
	return i < KNOWN_COUNT;
}

/* ---- opening ------------------------------------------------------------- */

/* A link of a snapshot is "../../blobs/HASH", with one ".." more for each subfolder. */
static int open_blob(const struct extras *extras, const char *name, int flags)
{
	char text[FILE_NAME_BYTES_MAX + 1];
	ssize_t length = readlinkat(extras->folder, name, text, sizeof(text) - 1);
	const char *at = text;
	size_t up = 2;

	if (length < 0)
		return -errno;
	text[length] = '\0';
	for (const char *c = name; *c; c++)
		up += *c == '/';
	for (; up > 0 && strncmp(at, "../", 3) == 0; up--)
		at += 3;
	if (up > 0 || strncmp(at, BLOBS "/", strlen(BLOBS "/")) != 0)
		return -EXDEV;
	at += strlen(BLOBS "/");
	if (!*at || *at == '.' || strchr(at, '/'))
		return -EXDEV;
	return beneath_open_in(extras->blobs, at, flags, BENEATH_NO_LINKS);
}

int extras_open(const struct extras *extras, const char *name, int flags)
{
	struct error error;
	int fd;

	if (extras->roots->handed)
		return handed_open(extras->roots->handed, name, &fd, &error) < 0 ? error.code : fd;
	fd = beneath_open_in(extras->folder, name, flags, BENEATH_LINKS);
	return fd == -EXDEV && extras->blobs >= 0 ? open_blob(extras, name, flags) : fd;
}

static bool same_file(int a, int b)
{
	struct stat x, y;

	return fstat(a, &x) == 0 && fstat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

/* Returns the blobs of the hub's repository whose snapshot the folder is, or -1. They have to lie beneath a root, too. */
static int find_blobs(const struct extras *extras)
{
	char *path = source_path(extras->source->folder.path, "../..");
	struct error error;
	int repository = -1, snapshots = -1, blobs = -1, parent;

	if (!path || beneath_open(extras->roots, path, &repository, &error) < 0) {
		free(path);
		return -1;
	}
	free(path);
	parent = openat(extras->folder, "..", LOOK | O_DIRECTORY);
	snapshots = openat(repository, SNAPSHOTS, LOOK | O_DIRECTORY | O_NOFOLLOW);
	if (parent >= 0 && snapshots >= 0 && same_file(parent, snapshots))
		blobs = openat(repository, BLOBS, LOOK | O_DIRECTORY | O_NOFOLLOW);
	close(repository);
	if (parent >= 0)
		close(parent);
	if (snapshots >= 0)
		close(snapshots);
	return blobs;
}

/* ---- one entry ----------------------------------------------------------- */

static int extras_no_memory(struct extras *extras)
{
	return error_set(extras->error, -ENOMEM, NULL, "%s: out of memory", extras->source->folder.path);
}

static bool name_is_shown(const char *name)
{
	char shown[UTF8_SHOWN_MAX(FILE_NAME_BYTES_MAX)];

	if (strlen(name) > FILE_NAME_BYTES_MAX)
		return false;
	utf8_show(name, shown, sizeof(shown));
	return strcmp(shown, name) == 0;
}

/* Whether the version has what is in this file, as tensors. */
static bool is_used(const struct source *source, const char *name)
{
	if (source->index && strcmp(source->index, name) == 0)
		return true;
	for (size_t i = 0; i < source->file_count; i++)
		if (strcmp(path_last(source->files[i].path), name) == 0)
			return true;
	return false;
}

static int add_file(struct extras *extras, const char *name, uint64_t bytes)
{
	struct extra_found *found = extras->found;
	const struct foreign *foreign;

	if (is_used(extras->source, name))
		return 0;
	if (format_of_name(name) || foreign_is_index(name)) {
		extras_leave(extras, LEFT_WEIGHTS, name, bytes, NULL);
		return 0;
	}
	foreign = foreign_name(name);
	if (foreign) {
		extras_leave(extras, LEFT_FORMAT, name, bytes, foreign->what);
		return 0;
	}
	/* The array grows at every power of two. */
	if ((extras->found_count & (extras->found_count - 1)) == 0)
		found = realloc(found, (2 * extras->found_count + 1) * sizeof(*found));
	if (!found)
		return extras_no_memory(extras);
	extras->found = found;
	found += extras->found_count;
	*found = (struct extra_found){.name = strdup(name), .bytes = bytes};
	if (!found->name)
		return extras_no_memory(extras);
	extras->found_count++;
	return 0;
}

static int add_link(struct extras *extras, const char *name)
{
	struct stat stat;
	int fd = extras_open(extras, name, LOOK), r = fd < 0 ? fd : fstat(fd, &stat) < 0 ? -errno : 0;

	if (fd >= 0)
		close(fd);
	if (r == 0 && S_ISREG(stat.st_mode))
		return add_file(extras, name, (uint64_t)stat.st_size);
	extras_leave(extras, r == 0 && !S_ISDIR(stat.st_mode) ? LEFT_SPECIAL : LEFT_LINK, name,
		     LEFT_SIZE_UNKNOWN, r < 0 && r != -EXDEV ? strerror(-r) : NULL);
	return 0;
}

/* What is no folder. stat: of the entry itself. */
static int add_entry(struct extras *extras, const char *name, const struct stat *stat)
{
	if (S_ISREG(stat->st_mode))
		return add_file(extras, name, (uint64_t)stat->st_size);
	if (S_ISLNK(stat->st_mode))
		return add_link(extras, name);
	extras_leave(extras, LEFT_SPECIAL, name, LEFT_SIZE_UNKNOWN, NULL);
	return 0;
}

/* ---- folders ------------------------------------------------------------- */

/* prefix: the folder, which ends with a slash, or "". inner: its subfolders, for later: one folder is open at a time. */
static int look_at(struct extras *extras, int dir, const char *prefix, const char *entry,
		   struct name_list *inner)
{
	char name[FILE_NAME_BYTES_MAX + NAME_MAX + 2];
	struct stat stat;
	uint64_t bytes;

	snprintf(name, sizeof(name), "%s%s", prefix, entry);
	if (fstatat(dir, entry, &stat, AT_SYMLINK_NOFOLLOW) < 0) {
		extras_leave(extras, LEFT_UNREAD, name, LEFT_SIZE_UNKNOWN, strerror(errno));
		return 0;
	}
	bytes = S_ISREG(stat.st_mode) ? (uint64_t)stat.st_size : LEFT_SIZE_UNKNOWN;
	if (entry[0] == '.') {
		extras_leave(extras, LEFT_HIDDEN, name, bytes, S_ISDIR(stat.st_mode) ? "a folder" : NULL);
		return 0;
	}
	if (!name_is_shown(name)) {
		extras_leave(extras, LEFT_NAME, name, bytes, NULL);
		return 0;
	}
	if (S_ISDIR(stat.st_mode))
		return name_list_add(inner, name) ? 0 : extras_no_memory(extras);
	/* These were looked at before. */
	if (!prefix[0] && is_known(entry))
		return 0;
	return add_entry(extras, name, &stat);
}

static int list_folder(struct extras *extras, const char *prefix, DIR *dir, struct name_list *inner)
{
	struct dirent *entry;
	int r = 0;

	/* cppcheck-suppress readdirCalled ; glibc: safe on streams of one thread */
	while (r == 0 && (errno = 0, entry = readdir(dir))) {
		if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
			continue;
		if (extras->entries == EXTRA_ENTRIES_MAX) {
			extras_leave(extras, LEFT_ENTRIES, prefix[0] ? prefix : "./", LEFT_SIZE_UNKNOWN, NULL);
			return 0;
		}
		extras->entries++;
		r = look_at(extras, dirfd(dir), prefix, entry->d_name, inner);
	}
	if (r == 0 && errno)
		extras_leave(extras, LEFT_UNREAD, prefix[0] ? prefix : "./", LEFT_SIZE_UNKNOWN,
			     strerror(errno));
	return r;
}

/* name: of a subfolder; "": the folder itself. Recursion ends at FILE_DEPTH_MAX. */
static int walk(struct extras *extras, const char *name, unsigned depth)
{
	char prefix[FILE_NAME_BYTES_MAX + 2] = "";
	int fd = beneath_open_in(extras->folder, name[0] ? name : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC,
				 BENEATH_NO_LINKS);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct name_list inner = {0};
	int r = 0;

	if (name[0])
		snprintf(prefix, sizeof(prefix), "%s/", name);
	if (!dir) {
		extras_leave(extras, LEFT_UNREAD, prefix[0] ? prefix : "./", LEFT_SIZE_UNKNOWN,
			     strerror(fd < 0 ? -fd : errno));
		if (fd >= 0)
			close(fd);
		return 0;
	}
	r = list_folder(extras, prefix, dir, &inner);
	closedir(dir);
	name_list_sort(&inner);
	for (size_t i = 0; i < inner.count; i++) {
		if (r == 0 && depth == FILE_DEPTH_MAX)
			extras_leave(extras, LEFT_DEEP, inner.names[i], LEFT_SIZE_UNKNOWN, NULL);
		else if (r == 0 && extras->entries == EXTRA_ENTRIES_MAX)
			extras_leave(extras, LEFT_ENTRIES, inner.names[i], LEFT_SIZE_UNKNOWN, NULL);
		else if (r == 0)
			r = walk(extras, inner.names[i], depth + 1);
	}
	name_list_clear(&inner);
	return r;
}

/* ---- the order ----------------------------------------------------------- */

static int by_size(const void *a, const void *b)
{
	const struct extra_found *x = a, *y = b;

	if (x->bytes != y->bytes)
		return x->bytes < y->bytes ? -1 : 1;
	return strcmp(x->name, y->name);
}

static int find_known(struct extras *extras)
{
	struct stat stat;
	int r = 0;

	for (size_t i = 0; r == 0 && i < KNOWN_COUNT; i++)
		if (fstatat(extras->folder, known[i], &stat, AT_SYMLINK_NOFOLLOW) == 0 &&
		    !S_ISDIR(stat.st_mode))
			r = add_entry(extras, known[i], &stat);
	return r;
}

/* Files that were handed over are in no folder; their descriptors are of regular files. */
static int find_handed(struct extras *extras, bool of_known)
{
	const struct handed *handed = extras->roots->handed;
	struct stat stat;
	int r = 0;

	for (size_t i = 0; r == 0 && i < handed->count; i++) {
		if (is_known(handed->names[i]) != of_known)
			continue;
		if (!name_is_shown(handed->names[i]))
			extras_leave(extras, LEFT_NAME, handed->names[i], LEFT_SIZE_UNKNOWN, NULL);
		else if (fstat(handed->fds[i], &stat) < 0)
			extras_leave(extras, LEFT_UNREAD, handed->names[i], LEFT_SIZE_UNKNOWN, strerror(errno));
		else
			r = add_file(extras, handed->names[i], (uint64_t)stat.st_size);
	}
	return r;
}

int extras_find(struct extras *extras)
{
	size_t first;
	int r;

	extras->blobs = extras->roots->handed ? -1 : find_blobs(extras);
	r = extras->roots->handed ? find_handed(extras, true) : find_known(extras);
	first = extras->found_count;
	if (r == 0)
		r = extras->roots->handed ? find_handed(extras, false) : walk(extras, "", 0);
	if (r == 0 && extras->found_count > first)
		qsort(extras->found + first, extras->found_count - first, sizeof(*extras->found), by_size);
	return r;
}
