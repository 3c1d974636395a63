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
	*store = (struct store){.max = max, .entries = calloc(max + 1, sizeof(*store->entries))};
	return store->entries ? 0 : -ENOMEM;
}

static void entry_clear(struct store *store, struct store_entry *entry)
{
	store->name_bytes -= strlen(entry->name) + 1;
	close(entry->fd);
	free(entry->name);
}

void store_clear(struct store *store)
{
	for (size_t i = 0; i < store->count; i++)
		entry_clear(store, &store->entries[i]);
	free(store->entries);
	*store = (struct store){0};
}

static bool is_stored(const struct store *store, int fd)
{
	pid_t self = getpid();

	for (size_t i = 0; i < store->count; i++) {
		if (syscall(SYS_kcmp, self, self, KCMP_FILE, fd, store->entries[i].fd) == 0)
			return true;
	}
	return false;
}

static int keep(struct store *store, int fd, const char *name)
{
	size_t bytes = strlen(name) + 1;
	struct store_entry entry;

	if (is_stored(store, fd))
		return 0;
	if (store->count == store->max)
		return -ENOSPC;
	if (store->name_bytes + bytes > STORE_NAME_BYTES_MAX)
		return -E2BIG;
	entry.fd = fcntl(fd, F_DUPFD_CLOEXEC, STORE_FD_FIRST + (int)store->max);
	if (entry.fd < 0)
		return -EMFILE; /* EINVAL too: the limit is below that number */
	entry.name = strdup(name);
	if (!entry.name) {
		close(entry.fd);
		return -ENOMEM;
	}
	store->entries[store->count++] = entry;
	store->name_bytes += bytes;
	return 1;
}

int store_add(struct store *store, int fd, const char *name)
{
	int r = keep(store, fd, name);

	close(fd); /* cheap: the sender or the store has another */
	return r;
}

size_t store_remove(struct store *store, const char *name)
{
	size_t kept = 0, removed;

	for (size_t i = 0; i < store->count; i++) {
		if (strcmp(store->entries[i].name, name) == 0)
			entry_clear(store, &store->entries[i]);
		else
			store->entries[kept++] = store->entries[i];
	}
	removed = store->count - kept;
	store->count = kept;
	return removed;
}
