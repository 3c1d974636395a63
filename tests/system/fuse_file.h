/* A file system whose one file is slow, damaged or gone at a place of the test's choice. Needs root and /dev/fuse. */
#ifndef GPUWM_TESTS_FUSE_FILE_H
#define GPUWM_TESTS_FUSE_FILE_H

#include "harness.h"

struct fuse_file {
	struct process server;
	char folder[112];
	char path[160]; /* of the file, beneath the root of d */
};

/* What happens to the first read that reaches a byte, and to all after it. */
enum fuse_fault {
	FUSE_FAILS, /* EIO */
	FUSE_WAITS, /* the server says 'w', and goes on when it is told anything */
	FUSE_HANGS, /* the server says 'w', and never answers again; unkillable, until it is killed itself */
};

/* Mounts a folder beneath d's root whose file model.safetensors is `backing`, which may change meanwhile.
 * False: not possible here. */
bool fuse_file_mount(struct gpuwmd *d, const char *backing, enum fuse_fault fault, uint64_t at,
		     struct fuse_file *ret);
/* Ends the server, so that whoever hangs in it goes on, and unmounts. */
void fuse_file_end(struct fuse_file *file);

#endif
