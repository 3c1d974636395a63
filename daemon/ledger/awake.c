#include "awake.h"

#include "registry.h"
#include "../net/peer.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

static const char magic[8] = "GPUWMAW";

bool awake_begin(struct awake_book *book, void *memory, size_t bytes, uint64_t pid_namespace)
{
	struct awake_table *table = memory;
	bool known;

	*book = (struct awake_book){.table = table,
				    .count = (bytes - sizeof(*table)) / sizeof(struct awake_entry)};
	known = memcmp(table->magic, magic, sizeof(magic)) == 0 && !table->incomplete &&
		table->pid_namespace == pid_namespace && pid_namespace && table->used <= book->count;
	if (known)
		return true;
	table->pid_namespace = 0;
	for (size_t i = 0; i < book->count && i < table->used; i++)
		awake_clear(&table->entries[i]);
	table->incomplete = 0;
	table->used = 0;
	memcpy(table->magic, magic, sizeof(magic));
	return false;
}

void awake_trust(struct awake_book *book, uint64_t pid_namespace)
{
	if (book->table)
		book->table->pid_namespace = pid_namespace;
}

/* As many as are looked at before others are used. */
#define USED_FIRST 64

static struct awake_entry *find_free(struct awake_book *book)
{
	struct awake_table *table = book->table;
	const size_t used = table->used;

	for (size_t i = 0; i < used; i++) {
		struct awake_entry *entry = &table->entries[book->next++ % used];

		if (entry->lease == 0)
			return entry;
	}
	if (used >= book->count)
		return NULL;
	book->next = used;
	table->used = used == 0 ? USED_FIRST : used * 2;
	if (table->used > book->count)
		table->used = book->count;
	return &table->entries[used];
}

void awake_note(struct awake_book *book, struct lease *lease)
{
	const struct device *device = lease_device(lease);
	struct awake_entry *entry;

	if (!book->table || lease->awake)
		return;
	entry = find_free(book);
	if (!entry) {
		book->table->incomplete = 1;
		return;
	}
	entry->started = lease->peer ? lease->peer->started : 0;
	entry->room = lease_room_bytes(lease);
	entry->pid = lease->peer ? (uint32_t)peer_pid(lease->peer) : 0;
	entry->uid = lease->peer ? lease->peer->uid : 0;
	snprintf(entry->device, sizeof(entry->device), "%s", device->id);
	atomic_signal_fence(memory_order_seq_cst);
	entry->lease = lease->id;
	lease->awake = entry;
}

void awake_note_room(struct lease *lease)
{
	if (lease->awake)
		lease->awake->room = lease_room_bytes(lease);
}

void awake_clear(struct awake_entry *entry)
{
	entry->lease = 0;
}

void awake_forget(struct lease *lease)
{
	if (lease->awake)
		awake_clear(lease->awake);
	lease->awake = NULL;
}
