/* What `gpuwmctl doctor` asks about the driver and the devices. A loader answers, since loaders are what may touch a GPU. The
 * loader tries things in the order of probe_run, and prints each result as one line at once, so that the caller of a driver that
 * hangs has the results before it and the name of the item that hangs. */
#ifndef GPUWM_LOADER_PROBE_H
#define GPUWM_LOADER_PROBE_H

#include "../../memory/memory_ipc.h"

/* A line has five texts with tabs between them: ITEM, DEVICE ("" if the item is of no device), RESULT, TEXT, REMEDY. */
enum probe_result {
	PROBE_TRYING, /* the result follows in a later line of this item and device */
	PROBE_OK,
	PROBE_NO, /* the driver or the device does not have it */
	PROBE_FAILED,
};

/* Prints a line to stdout and flushes it. Control characters in the texts become '?'. */
void probe_say(const char *item, const char *device, enum probe_result result, const char *text,
	       const char *remedy);
/* Prints a line with what the error says. */
void probe_say_error(const char *item, const char *device, enum probe_result result, const struct error *error);

/* `gpuwm-loader --probe`: tries everything, on every device. Returns 0, or a negative errno with *error set if it can't begin. */
int probe_run(struct error *error);

/* ---- the second process (probe_peer.c) ---- */

struct probe_peer {
	int sock, pid; /* pid 0: there is none */
};

/* What the second process is to read: memory that the first one made and filled. */
struct probe_request {
	bool is_ipc; /* the memory comes as a legacy CUDA IPC handle; false: as a descriptor */
	char device[DEVICE_BYTES_MAX + 1];
	uint64_t bytes;
	struct ipc_handle handle;
};

/* Starts the second process: this program with --probe --fd N. Fails with the errno of socketpair(2) or posix_spawn(3). */
int probe_peer_start(struct probe_peer *ret, struct error *error);
/* Ends it, and does not wait for a process that hangs in the kernel. */
void probe_peer_end(struct probe_peer *peer);
/* Sends the request, with the descriptor if fd is not -1, and waits until the second process has mapped and compared. Returns
 * 0, or what failed there, or the errno of sending. */
int probe_peer_ask(struct probe_peer *peer, const struct probe_request *request, int fd, struct error *error);
/* `gpuwm-loader --probe --fd N`: answers requests until the first process closes the socket. */
int probe_peer_run(int sock);

/* The content that both processes expect. */
#define PROBE_BYTES 4096
void probe_fill(unsigned char ret_bytes[PROBE_BYTES]);
/* Reads PROBE_BYTES of mapped memory and compares them with the content, inside memory_enter. -EBADMSG: they differ. */
int probe_compare(const struct memory_device *device, const void *address, struct error *error);

/* ---- items ---- */

/* Makes memory on the device, fills it, passes it to the second process and frees it. Item "share". */
void probe_share(struct probe_peer *peer, const struct memory_device *device);
/* The driver's version, and every GPU that CUDA shows, with what only GPUs have (probe_cuda.c). Without a driver it says so. In a build
 * without cuda.h it says that. */
void probe_cuda(struct probe_peer *peer);

/* ---- legacy CUDA IPC ----
 *
 * What copies for processes that can't take descriptors need (loader/hold.c). */

/* Tries it on a GPU, with the second process as the reader, inside memory_enter. Item "ipc". */
void probe_ipc(struct probe_peer *peer, const struct memory_device *device);
/* In the second process: opens the handle, reads and compares. -ENOTSUP: the device, or its driver, has no such calls. */
int probe_ipc_read(const struct memory_device *device, const struct ipc_handle *handle, struct error *error);

#endif
