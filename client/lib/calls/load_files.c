#include "load_files.h"

#include "../error.h"

#include <assert.h>
#include <errno.h>
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
		return error_set(error, -EPROTO, NULL, "load: the socket for the files is missing");
	r = packet_send(sock, text->data, text->size, files->fds, files->count);
	close(sock);
	return r < 0 ? error_set(error, r, "the load fails: begin it again",
				 "passing %zu files to the loader failed: %s", files->count, strerror(-r))
		     : 0;
}

void load_files_clear(struct load_files *files)
{
	if (files->count > 0)
		message_writer_clear(&files->message);
	files->count = 0;
}
