/* Files that the caller passes to a loader: those of a load, and those by which a publisher describes a version. */
#ifndef GPUWM_LIB_LOAD_FILES_H
#define GPUWM_LIB_LOAD_FILES_H

#include "../request/call.h"

/* The message with the files. A zeroed one has no files. */
struct load_files {
	struct message_writer message;
	int fds[PACKET_FDS_MAX]; /* the caller's */
	size_t count;
};

/* Makes the message, so that what is wrong with it shows before the load is asked for. Without files it does nothing.
 * Returns 0. Fails with -EINVAL if a file has no name, a name that is too long, or no descriptor, -E2BIG if there are more than
 * LOAD_FILES_MAX, and -ENOMEM. */
int load_files_prepare(struct load_files *files, const struct gpuwm_load_file *list, size_t count,
		       struct error *error);
/* Sends the message through the socket at this position of the packet (NULL: there is none), and closes the socket: the
 * descriptors lie in it until the loader takes them. Returns 0. Fails with -EPROTO, or an errno of the sending. */
int load_files_send(struct load_files *files, struct packet *packet, const uint64_t *position,
		    struct error *error);

/* Opens the model files of a folder, as this process may, and makes the message of them. Returns 0. Then the caller closes
 * files->fds. Fails with -E2BIG, and with -errno; the message names the file. */
int load_files_of_folder(struct load_files *files, const char *folder, struct error *error);

#endif
