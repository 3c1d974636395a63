/* Copies of parts for processes that can't take descriptors. A copy lies in memory of cuMemAlloc, which one loader has made and
 * filled: its holder. Handles of legacy CUDA IPC lead other processes there. The copy dies with its holder.
 *
 * A copy belongs to one user, who is charged with its bytes: all processes that open its handles can write into it, and no user is
 * to write into what another user reads. */
#ifndef GPUWM_DAEMON_IPC_COPY_H
#define GPUWM_DAEMON_IPC_COPY_H

#include "registry.h"
#include "../../proto/wire/transport.h"

enum ipc_copy_state {
	COPY_FILLING, /* a job makes it */
	COPY_READY,
	COPY_LOST, /* its holder is gone, as `error` says; it ends before the loop sleeps */
	COPY_ENDED, /* it is being freed */
};
const char *ipc_copy_state_name(enum ipc_copy_state state);

struct ipc_copy {
	struct version *version; /* not freed before the copy has ended */
	uint32_t replica;
	uid_t uid;
	enum ipc_copy_state state;
	struct error error; /* why it is lost or ended */
	uint64_t since_ms; /* since 1970 */
	uint64_t bytes;
	struct shared_charge *charge; /* of the device and the user; the holder's process has a use too */
	struct quota_charge count;
	uint64_t pid; /* the holder's; 0: not yet */
	struct ipc_handle *handles; /* malloced: one a segment; NULL: it is filling */
	struct ipc_handle event; /* recorded behind the fill */
	uint64_t lease_count; /* those of the version that have this copy */
	uint64_t idle_ms; /* steady: since when it has no lease; 0: it has one */
	struct ipc_copy *next;
};

struct ipc_copy_table {
	struct quota *quota; /* what each user is charged with; not the table's */
	struct ipc_copy *first;
	uint64_t count, bytes;
};

/* Makes a copy in the state COPY_FILLING without leases, and charges its bytes to the device of the part and to the user. Sets
 * *ret_copy, which belongs to the table. Fails with -EDQUOT (the user's copies or bytes, or there are COPIES_MAX copies), -ENOSPC
 * (the copy and the context of its holder don't fit the device's budget) and -ENOMEM. */
int ipc_copy_add(struct ipc_copy_table *table, struct version *version, uint32_t replica, uid_t uid,
		 struct ipc_copy **ret_copy, struct error *error);
/* Takes the copy, which has no lease, out of the table and frees it. */
void ipc_copy_free(struct ipc_copy_table *table, struct ipc_copy *copy);
/* Frees all copies. A zeroed table is fine. */
void ipc_copy_table_clear(struct ipc_copy_table *table);

/* Returns the user's copy of this part that is filling or ready, or NULL. */
struct ipc_copy *ipc_copy_find(const struct ipc_copy_table *table, const struct version *version,
			       uint32_t replica, uid_t uid);

/* Adds a lease to the copy, which goes with it until ipc_copy_leave. */
void ipc_copy_join(struct ipc_copy *copy, struct lease *lease);
/* Takes the lease from its copy. If it was the copy's last lease, the copy is idle since now_ms (steady). Does nothing if the lease has
 * no copy. */
void ipc_copy_leave(struct lease *lease, uint64_t now_ms);

/* Sets the copy's state to COPY_LOST: its holder is gone, for the reason `why`. */
void ipc_copy_lose(struct ipc_copy *copy, const struct error *why);

/* Returns the device of the copy. */
struct device *ipc_copy_device(const struct ipc_copy *copy);

#endif
