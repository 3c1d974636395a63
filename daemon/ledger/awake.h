/* Which leases are awake, in memory that outlives gpuwmd (restart/state.h). After a restart gpuwmd moves no version before the processes
 * that map it have come back, and the table says whom to wait for. gpuwmd writes an entry before a process hears of its lease, and takes it
 * out when the lease is parked or ends. So after a kill the table may have more leases than processes know of, but never less. */
#ifndef GPUWM_DAEMON_AWAKE_H
#define GPUWM_DAEMON_AWAKE_H

#include "../../base/limits.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct lease;

/* These stay as they are: an older program may have written them. */
struct awake_entry {
	uint64_t lease; /* its id, which is written last, and cleared first; 0: the entry is free */
	uint64_t started; /* with pid: the process (base/pids.h); 0: nobody knows */
	uint64_t room; /* bytes that it takes on the device besides */
	uint32_t pid; /* 0: of another PID namespace */
	uint32_t uid;
	char device[DEVICE_BYTES_MAX + 1];
};
struct awake_table {
	char magic[8];
	uint64_t pid_namespace; /* in which the pids count */
	uint64_t incomplete; /* 1: there were more leases than entries */
	uint64_t used; /* entries from here on were never written, so that they take no memory */
	struct awake_entry entries[];
};

/* The table, and where it is written next. All zeros: there is none, and nothing is noted. */
struct awake_book {
	struct awake_table *table;
	size_t count; /* of its entries */
	size_t next;
};

/* Begins to write the table in this memory, which stays there. Returns whether it has all that an earlier gpuwmd noted, by pids that count
 * here. If not, it is empty, and the next gpuwmd trusts it only after awake_trust. */
bool awake_begin(struct awake_book *book, void *memory, size_t bytes, uint64_t pid_namespace);
/* All leases that may be awake are noted, or nobody waits for the others any more. */
void awake_trust(struct awake_book *book, uint64_t pid_namespace);
/* The lease is awake from now on. A lease that is noted already is fine. */
void awake_note(struct awake_book *book, struct lease *lease);
/* The lease has other room. One that is not noted is fine. */
void awake_note_room(struct lease *lease);
/* The lease is not awake any more. One that is not noted is fine. */
void awake_forget(struct lease *lease);
/* Frees an entry. */
void awake_clear(struct awake_entry *entry);

#endif
