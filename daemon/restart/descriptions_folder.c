/* The folder on disk: how it is opened, and what lies in it. */
#include "descriptions_internal.h"

#include "../../base/clock.h"
#include "../../base/text.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_FILE "lock"
/* At its start gpuwmd waits for a last one that has let go of its socket and not yet of the folder: the same end closes both. */
#define FOLDER_WAIT_MS 5000
#define FOLDER_LOOK_MS 10

void descriptions_fail(struct descriptions *d, const struct error *error)
{
	d->error = *error;
	log_warning("%s%s%s", error->message, error->detail[0] ? ": " : "", error->detail);
}

/* ---- the table ---- */

struct described *described_find(const struct descriptions *d, const struct version_id *id)
{
	struct described *file;

	HASH_FIND(hh, d->files, id, sizeof(*id), file);
	return file;
}

struct described *described_add(struct descriptions *d, const struct version_id *id)
{
	struct described *file = described_find(d, id);

	if (file)
		return file;
	file = calloc(1, sizeof(*file));
	if (!file)
		return NULL;
	file->id = *id;
	HASH_ADD(hh, d->files, id, sizeof(file->id), file);
	if (!file->hh.tbl) {
		free(file);
		return NULL;
	}
	return file;
}

void described_remove(struct descriptions *d, struct described *file)
{
	HASH_DEL(d->files, file);
	free(file);
}

void descriptions_forget_read(struct descriptions *d)
{
	message_clear(&d->read.message);
	free(d->read_body);
	d->read_body = NULL;
	d->read = (struct description_names){0};
}

void descriptions_close(struct descriptions *d)
{
	free((void *)d->left.versions);
	free((void *)d->left.aliases);
	d->left = (struct left_names){0};
	d->left_error.code = 0;
	descriptions_forget_read(d);
	while (d->files)
		described_remove(d, d->files);
	free(d->names);
	d->names = NULL;
	d->names_bytes = 0;
	if (d->lock >= 0)
		descriptions_unlock(d);
	if (d->folder >= 0)
		close(d->folder);
	d->folder = d->lock = -1;
	d->unsafe.code = 0;
}

/* ---- opening ---- */

#define REMEDY "or set another folder in [tiers] of the configuration, or none; then gpuwmctl reload"

#define REMEDY_PATH "%.800s" /* so that the rest of a remedy fits into TEXT_BYTES_MAX */

/* Whoever can write into it could have gpuwmd load files that nobody wanted. What the kernel knows of an open folder is enough, so that no
 * file system is asked, which may hang. */
static int folder_check(int fd, const char *path, struct error *error)
{
	char remedy[TEXT_BYTES_MAX + 1];
	struct statx st;

	if (statx(fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_UID | STATX_MODE, &st) < 0)
		return error_set(error, -errno, REMEDY, "%s can't be looked at: %s", path, strerror(errno));
	if (st.stx_uid != geteuid()) {
		/* The files of another user are left to that user: gpuwmd moves those aside, instead of believing them. */
		snprintf(remedy, sizeof(remedy), "chown %u '" REMEDY_PATH "', " REMEDY, (unsigned)geteuid(),
			 path);
		return error_set(
			error, -EPERM, remedy,
			"the folder %s for descriptions belongs to user %u, and gpuwmd runs as user %u", path,
			(unsigned)st.stx_uid, (unsigned)geteuid());
	}
	if (st.stx_mode & (S_IWGRP | S_IWOTH)) {
		const char *group = st.stx_mode & S_IWGRP ? "its group" : "";
		const char *all = st.stx_mode & S_IWOTH ? "every user" : "";

		snprintf(remedy, sizeof(remedy), "chmod go-w '" REMEDY_PATH "', " REMEDY, path);
		return error_set(error, -EPERM, remedy,
				 "the folder %s for descriptions can be written to by %s%s%s: its mode is %04o",
				 path, group, *group && *all ? " and " : "", all,
				 (unsigned)st.stx_mode & 07777);
	}
	return 0;
}

bool descriptions_judge(struct descriptions *d)
{
	struct error error = {0};

	if (d->folder < 0 || folder_check(d->folder, d->path, &error) == 0) {
		if (d->unsafe.code && d->folder >= 0)
			log_info("the folder %s for descriptions can be used again", d->path);
		d->unsafe.code = 0;
		return true;
	}
	if (strcmp(d->unsafe.message, error.message) != 0 || !d->unsafe.code)
		log_warning("%s: %s", error.message, error.detail);
	d->unsafe = error;
	return false;
}

static int folder_not_made(const char *path, int number, struct error *error)
{
	return error_set(error, -number, "make it, with mode 0700, " REMEDY,
			 "the folder %s for descriptions can't be made: %s", path, strerror(number));
}

static int folder_open(const char *path, struct error *error)
{
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	if (fd < 0)
		return error_set(error, -errno, REMEDY, "the folder %s for descriptions can't be opened: %s",
				 path, strerror(errno));
	return fd;
}

int descriptions_check(const char *path, struct error *error)
{
	char above[PATH_BYTES_MAX + 1];
	struct stat st;
	char *slash;
	int fd, r;

	/* mkdir, too, takes a link that leads nowhere for something that is there. */
	if (lstat(path, &st) < 0) {
		if (errno != ENOENT)
			return folder_not_made(path, errno, error);
		snprintf(above, sizeof(above), "%s", path);
		for (size_t bytes = strlen(above); bytes > 1 && above[bytes - 1] == '/'; bytes--)
			above[bytes - 1] = '\0';
		slash = strrchr(above, '/');
		slash[slash == above] = '\0';
		return faccessat(AT_FDCWD, above, W_OK | X_OK, AT_EACCESS) == 0
			       ? 0
			       : folder_not_made(path, errno, error);
	}
	fd = folder_open(path, error);
	if (fd < 0)
		return fd;
	r = folder_check(fd, path, error);
	close(fd);
	return r;
}

/* A name like "0123….version". */
static bool is_version_file(const char *name, struct version_id *ret)
{
	char digits[VERSION_ID_TEXT];

	if (strlen(name) != VERSION_ID_TEXT - 1 + strlen(VERSION_SUFFIX) || !text_ends(name, VERSION_SUFFIX))
		return false;
	snprintf(digits, sizeof(digits), "%s", name);
	return hex128_parse(digits, ret->bytes) == 0;
}

static int note_file(struct folder_call *call, const struct version_id *id)
{
	struct version_id *ids = reallocarray(call->ids, call->id_count + 1, sizeof(*ids));

	if (!ids)
		return -ENOMEM;
	call->ids = ids;
	ids[call->id_count++] = *id;
	return 0;
}

/* Notes the files of versions. If the folder is gpuwmd's, files that a kill left half written go. */
static int folder_scan(struct folder_call *call, bool is_ours, struct error *error)
{
	int fd = openat(call->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), r = 0;
	DIR *directory = fd >= 0 ? fdopendir(fd) : NULL;
	const struct dirent *entry;

	if (!directory) {
		r = -errno;
		if (fd >= 0)
			close(fd);
		return error_set(error, r, REMEDY, "%s can't be read: %s", call->path, strerror(-r));
	}
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while (r == 0 && (entry = readdir(directory))) {
		struct version_id id;

		if (is_ours && text_ends(entry->d_name, DESCRIPTION_NEW))
			unlinkat(call->folder, entry->d_name, 0);
		if (is_version_file(entry->d_name, &id))
			r = note_file(call, &id);
		folder_ask_step(&call->ask);
	}
	closedir(directory);
	return r < 0 ? error_set(error, r, NULL, "%s can't be read: %s", call->path, strerror(-r)) : 0;
}

static int lock_folder(struct folder_call *call)
{
	const struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	const int64_t deadline = clock_deadline(call->is_late ? 0 : FOLDER_WAIT_MS);
	bool is_logged = false;

	while (fcntl(call->lock, F_SETLK, &whole) < 0) {
		if (errno != EACCES && errno != EAGAIN)
			return -errno;
		if (clock_left(deadline) == 0)
			return -EWOULDBLOCK;
		if (!is_logged)
			log_info("%s is in use by another gpuwmd: gpuwmd waits for its end, at most %g seconds",
				 call->path, FOLDER_WAIT_MS / 1000.0);
		is_logged = true;
		folder_ask_step(&call->ask);
		poll(NULL, 0, FOLDER_LOOK_MS);
	}
	return 0;
}

/* Locks the folder, if gpuwmd may believe what lies in it. A record lock, as the socket's is: when gpuwmd is killed, that
 * goes as its files are closed, and one of flock only after all memory that it held is free, which may take a minute. */
static int folder_take(struct folder_call *call, struct error *error)
{
	int r = folder_check(call->folder, call->path, error);

	if (r < 0)
		return r;
	call->lock = openat(call->folder, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	r = call->lock >= 0 ? lock_folder(call) : -errno;
	if (r == -EWOULDBLOCK)
		return error_set(error, r, "each gpuwmd needs a folder of its own: change folder in [tiers]",
				 "%s is in use by another gpuwmd", call->path);
	return r < 0 ? error_set(error, r, REMEDY, "%s can't be locked by its file %s: %s", call->path,
				 LOCK_FILE, strerror(-r))
		     : 0;
}

void descriptions_give_up(struct descriptions *d, bool may_hold, const struct error *error)
{
	descriptions_close(d);
	d->may_hold = may_hold;
	descriptions_fail(d, error);
}

static void open_run(struct folder_ask *ask)
{
	struct folder_call *call = (struct folder_call *)ask;
	struct error unread;

	if (mkdir(call->path, 0700) < 0 && errno != EEXIST) {
		folder_not_made(call->path, errno, &call->error);
		return;
	}
	call->may_hold = true;
	call->folder = folder_open(call->path, &call->error);
	if (call->folder < 0)
		return;
	if (folder_take(call, &call->error) < 0)
		call->may_hold = folder_scan(call, false, &unread) < 0 || call->id_count > 0;
	else
		folder_scan(call, true, &call->error);
}

void descriptions_open_now(struct descriptions *d, const char *path)
{
	struct folder_call *call;
	struct error error;

	descriptions_close(d);
	d->error.code = 0;
	d->may_hold = false;
	if (path != d->path)
		snprintf(d->path, sizeof(d->path), "%s", path);
	if (!d->path[0])
		return;
	call = folder_call_new(d, open_run);
	if (folder_call_ask(d, call, &error) < 0) {
		descriptions_give_up(d, true, &error);
		return;
	}
	for (size_t i = 0; !call->error.code && i < call->id_count; i++) {
		if (!described_add(d, &call->ids[i]))
			error_set(&call->error, -ENOMEM, NULL, "%s can't be read: no memory", d->path);
	}
	if (call->error.code) {
		descriptions_give_up(d, call->may_hold, &call->error);
	} else {
		d->folder = call->folder;
		d->lock = call->lock;
		call->folder = call->lock = -1;
	}
	folder_call_free(call);
}
