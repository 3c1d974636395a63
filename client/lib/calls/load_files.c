#include "load_files.h"

#include "../../../base/text.h"

#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A name takes 3 bytes more than its text, and the message around them some 40. */
static_assert(LOAD_FILES_MAX * (LOAD_FILE_NAME_BYTES_MAX + 3) + 64 <= PACKET_BYTES_MAX,
	      "the names fit a packet");

static int load_files_check(const struct gpuwm_load_file *list, size_t count, struct error *error)
{
	if (count > LOAD_FILES_MAX)
		return error_set(error, -E2BIG, "leave out files that the model does not need",
				 "the load is passed %zu files, and %d are possible", count, LOAD_FILES_MAX);
	for (size_t i = 0; i < count; i++) {
		if (!list[i].name || list[i].fd < 0)
			return error_set(error, -EINVAL, NULL, "file %zu of the load has no %s", i,
					 list[i].name ? "descriptor" : "name");
		if (strlen(list[i].name) > LOAD_FILE_NAME_BYTES_MAX)
			return error_set(error, -EINVAL, NULL,
					 "the name of file %zu of the load has %zu bytes, and %d are possible",
					 i, strlen(list[i].name), LOAD_FILE_NAME_BYTES_MAX);
	}
	return 0;
}

int load_files_prepare(struct load_files *files, const struct gpuwm_load_file *list, size_t count,
		       struct error *error)
{
	const char *names[LOAD_FILES_MAX];
	int r = list ? load_files_check(list, count, error) : 0;

	if (r < 0 || !list || count == 0)
		return r;
	for (size_t i = 0; i < count; i++) {
		names[i] = list[i].name;
		files->fds[i] = list[i].fd;
	}
	files->count = count;
	message_write_notification(&files->message, &form_hand_files,
				   &(struct hand_files_params){.names = {names, (uint32_t)count}});
	r = message_finish(&files->message);
	return r < 0 ? error_set(error, r, NULL, "out of memory for the names of %zu files", count) : 0;
}

int load_files_send(struct load_files *files, struct packet *packet, const uint64_t *position,
		    struct error *error)
{
	const msgpack_sbuffer *text = &files->message.buffer;
	int sock, r;

	if (!position || packet_take_fd(packet, *position, &sock) < 0)
		return error_set(error, -EPROTO, NULL, "the socket for the files is missing");
	r = packet_send(sock, text->data, text->size, files->fds, files->count);
	close(sock);
	return r < 0 ? error_set(error, r, "the job fails: begin it again",
				 "passing %zu files to the loader failed: %s", files->count, strerror(-r))
		     : 0;
}

/* ---- of a folder ---- */

static int add_file(const char *path, int folder, const char *name, struct gpuwm_load_file list[LOAD_FILES_MAX],
		    size_t *count, struct error *error)
{
	char *copy = strdup(name);
	int fd;

	if (!copy)
		return error_set(error, -ENOMEM, NULL, "out of memory for the names of files");
	if (*count == LOAD_FILES_MAX) {
		free(copy);
		return error_set(error, -E2BIG, "have an operator describe it",
				 "%s has more than %d model files", path, LOAD_FILES_MAX);
	}
	fd = openat(folder, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0) {
		fd = -errno;
		free(copy);
		return error_set(error, fd, "who is no operator describes a version by files that it can read",
				 "%s/%s can't be opened: %s", path, name, strerror(-fd));
	}
	list[(*count)++] = (struct gpuwm_load_file){copy, fd};
	/* cppcheck-suppress [memleak, resourceLeak] ; the list has both */
	return 0;
}

static int add_files(const char *path, struct gpuwm_load_file list[LOAD_FILES_MAX], size_t *count,
		     struct error *error)
{
	DIR *folder = opendir(path);
	const struct dirent *entry;
	int r = 0;

	if (!folder)
		return error_set(error, -errno, "the source is a folder that this process can read",
				 "%s can't be opened: %s", path, strerror(errno));
	/* cppcheck-suppress readdirCalled ; the folder is this call's own */
	while (r == 0 && (entry = readdir(folder)))
		if (entry->d_name[0] != '.' && (text_ends(entry->d_name, ".safetensors") ||
						text_ends(entry->d_name, ".safetensors.index.json")))
			r = add_file(path, dirfd(folder), entry->d_name, list, count, error);
	closedir(folder);
	return r;
}

int load_files_of_folder(struct load_files *files, const char *folder, struct error *error)
{
	struct gpuwm_load_file *list = calloc(LOAD_FILES_MAX, sizeof(*list));
	size_t count = 0;
	int r = list ? add_files(folder, list, &count, error)
		     : error_set(error, -ENOMEM, NULL, "out of memory for the names of files");

	if (r == 0 && count == 0)
		r = error_set(error, -ENOENT, NULL, "%s has no model files", folder);
	if (r == 0)
		r = load_files_prepare(files, list, count, error);
	for (size_t i = 0; i < count; i++) {
		free((char *)list[i].name);
		if (r < 0)
			close(list[i].fd);
	}
	free(list);
	return r;
}
