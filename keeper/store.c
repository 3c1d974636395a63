#include "store.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/kcmp.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int store_init(struct store *store, size_t max)
{
	*store = (struct store){.max = max,
				.entries = calloc(max + 1, sizeof(*store->entries)),
				.by_file = calloc(max + 1, sizeof(*store->by_file))};
	if (store->entries && store->by_file)
		return 0;
	store_clear(store);
	return -ENOMEM;
}

static void entry_clear(struct store *store, struct store_entry *entry)
{
	store->name_bytes -= strlen(entry->name) + 1;
	close(entry->fd);
}

void store_clear(struct store *store)
{
	for (size_t i = 0; i < store->count; i++)
		entry_clear(store, &store->entries[i]);
	free(store->entries);
	free(store->by_file);
	*store = (struct store){0};
}

/* Finds an open file in by_file. Returns true with its place, or false with the place where it
 * belongs. One kcmp takes 2 us: comparing with all of 2,000 descriptors would keep the keeper from
 * everything else for 4 ms. */
static bool find_file(const struct store *store, int fd, size_t *ret_place)
{
	size_t low = 0, high = store->count;
	pid_t self = getpid();

	while (low < high) {
		size_t middle = (low + high) / 2;
		long order = syscall(SYS_kcmp, self, self, KCMP_FILE, fd, store->by_file[middle]);

		if (order == 0) {
			*ret_place = middle;
			return true;
		}
		if (order == 1)
			high = middle;
		else
			low = middle + 1;
	}
	*ret_place = low;
	return false;
}

static int keep_copy(struct store *store, int fd, const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct store_entry *entry = &store->entries[store->count];
	size_t place;

	if (find_file(store, fd, &place)) {
		size_t i = 0;

		while (store->entries[i].fd != store->by_file[place])
			i++;
		return strcmp(store->entries[i].name, name) == 0 ? 0 : -EEXIST;
	}
	if (store->count == store->max)
		return -ENOSPC;
	if (store->name_bytes + bytes > STORE_NAME_BYTES_MAX)
		return -E2BIG;
	entry->fd = fcntl(fd, F_DUPFD_CLOEXEC, STORE_FD_FIRST + (int)store->max);
	if (entry->fd < 0)
		return -EMFILE; /* EINVAL too: it says that the limit is below that number */
	memcpy(entry->name, name, bytes);
	memmove(store->by_file + place + 1, store->by_file + place,
		(store->count - place) * sizeof(*store->by_file));
	store->by_file[place] = entry->fd;
	store->count++;
	store->name_bytes += bytes;
	return 1;
}

int store_add(struct store *store, int fd, const char *name)
{
	int r = keep_copy(store, fd, name);

	close(fd); /* cheap, since the sender or the store has another descriptor */
	return r;
}

size_t store_remove(struct store *store, const char *name)
{
	size_t kept = 0, removed, place;

	for (size_t i = 0; i < store->count; i++) {
		if (strcmp(store->entries[i].name, name) == 0) {
			for (place = 0; store->by_file[place] != store->entries[i].fd;)
				place++;
			memmove(store->by_file + place, store->by_file + place + 1,
				(store->count - (i - kept) - place - 1) * sizeof(*store->by_file));
			entry_clear(store, &store->entries[i]);
		} else {
			store->entries[kept++] = store->entries[i];
		}
	}
	removed = store->count - kept;
	store->count = kept;
	return removed;
}
