/* The descriptors that the program handed over, with their names, in the order in which they
 * came. */
#ifndef GPUWM_KEEPER_STORE_H
#define GPUWM_KEEPER_STORE_H

#include "notify.h"

#include <stddef.h>

struct store_entry {
	int fd;
	char name[FD_NAME_BYTES_MAX + 1];
};

struct store {
	struct store_entry *entries; /* room for `max` entries; `by_file` has as much */
	int *by_file; /* the same descriptors, in the order in which kcmp(2) sorts open files */
	size_t count, max;
	size_t name_bytes; /* the bytes of all names, each with the ':' behind it */
};

/* The first stored descriptor in the program (sd_listen_fds(3)). */
#define STORE_FD_FIRST 3

/* The names are one environment variable of the next start. The kernel takes 128 KiB a variable
 * (MAX_ARG_STRLEN): with more, no start would ever succeed again. */
#define STORE_NAME_BYTES_MAX (131072 - sizeof("LISTEN_FDNAMES="))

/* Makes an empty store for `max` descriptors. Returns 0. Fails with -ENOMEM. */
int store_init(struct store *store, size_t max);
/* Closes all descriptors and frees the store's memory. */
void store_clear(struct store *store);

/* Stores the descriptor under this name, or closes it. The store keeps each open file once, as
 * systemd does: it compares files by kcmp(2), and keeps a file twice if there is no kcmp. A stored
 * descriptor gets a number of at least STORE_FD_FIRST + max, so that a child can move it to its
 * place without a clash. The function needs no memory: store_init has allocated all of it.
 *
 * Returns 1 if the descriptor is stored, 0 if its file was there already under this name.
 *
 * Fails with
 *   -EEXIST  The file is there under another name.
 *   -ENOSPC  The store is full.
 *   -E2BIG   The names of all descriptors are too long.
 *   -EMFILE  There is no number for another descriptor. */
int store_add(struct store *store, int fd, const char *name);

/* Closes every descriptor of this name. Returns how many there were. It closes them at once, so
 * that a barrier behind the removal says that the keeper's descriptor is closed. To close the last
 * descriptor of a memfd takes 57 ms a GiB. The program removes, waits for the barrier, and only
 * then closes its own descriptor. So the keeper's is the last one only if the program died in
 * between. */
size_t store_remove(struct store *store, const char *name);

#endif
