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

/* Stores the descriptor under this name, or closes it. The store keeps each open file once, as systemd does; it compares
 * files by kcmp(2), and without that keeps one twice. A stored descriptor gets a number of at least STORE_FD_FIRST + max,
 * so that a child can move it to its place without a clash. Needs no memory: store_init has taken all of it.
 * Returns 1 if the descriptor is stored, 0 if its file was there already under this name. -EEXIST: its file is there under
 * another name; -ENOSPC: the store is full; -E2BIG: the names of all descriptors are too long; -EMFILE. */
int store_add(struct store *store, int fd, const char *name);

/* Closes every descriptor of this name; returns how many. It happens at once, so that the barrier behind it tells that
 * ours is closed. It takes 57 ms a GiB of memfd where it is the last: the program removes, waits for the barrier, then
 * closes its own. Only one that died in between makes us pay, once. */
size_t store_remove(struct store *store, const char *name);

#endif
