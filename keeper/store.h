/* The descriptors that the program handed over, by name, in the order in which they came. */
#ifndef GPUWM_KEEPER_STORE_H
#define GPUWM_KEEPER_STORE_H

#include "notify.h"

#include <stddef.h>

struct store_entry {
	int fd;
	char name[FD_NAME_BYTES_MAX + 1];
};

struct store {
	struct store_entry *entries; /* room for `max`, as `by_file` has */
	int *by_file; /* the same descriptors, in the order that kcmp(2) gives open files */
	size_t count, max;
	size_t name_bytes; /* of all names, each with the ':' behind it */
};

/* The program finds what is stored from here on (sd_listen_fds(3)). */
#define STORE_FD_FIRST 3

/* All names are one environment variable of the next start. The kernel takes 128 KiB a
 * variable (MAX_ARG_STRLEN); with more, no start would ever succeed again. */
#define STORE_NAME_BYTES_MAX (131072 - sizeof("LISTEN_FDNAMES="))

/* -ENOMEM. */
int store_init(struct store *store, size_t max);
/* Closes all. */
void store_clear(struct store *store);

/* Takes the descriptor, and closes it if it is not kept. Needs no memory: all of it was there at the start. The same open
 * file is kept once (as systemd does, by kcmp(2); where the kernel has or allows none, twice). What is kept gets a number at or
 * above STORE_FD_FIRST + max, so that a child can put it in its place without a clash.
 * 1 kept, 0 it was there already by this name, -EEXIST (it is there by another name), -ENOSPC (the store is full),
 * -E2BIG (the names are), -EMFILE. */
int store_add(struct store *store, int fd, const char *name);

/* Closes every descriptor of this name; returns how many. It happens at once, so that the barrier behind it tells that
 * ours is closed. It takes 57 ms a GiB of memfd where it is the last: the program removes, waits for the barrier, then
 * closes its own. Only one that died in between makes us pay, once. */
size_t store_remove(struct store *store, const char *name);

#endif
