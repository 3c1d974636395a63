/* Leases that were awake when the last gpuwmd ended, and whose processes have not come back yet: they map their versions, so gpuwmd moves
 * none meanwhile. When the last of them is back, or its process is gone, nobody has to wait for the end of the grace time. Until then their
 * room is charged. */
#ifndef GPUWM_DAEMON_AWAITED_H
#define GPUWM_DAEMON_AWAITED_H

#include "../ledger/awake.h"
#include "../ledger/device.h"

#include <sys/types.h>
#include <uv.h>

struct awaited;

/* Called once, in a turn of the loop of its own, when nobody is awaited any more. */
typedef void awaited_over_fn(void *data);

/* Awaits the leases of the table, and watches their processes. Those whose processes are gone already are not awaited. Returns NULL if there is no
 * memory. */
struct awaited *awaited_new(uv_loop_t *loop, const struct awake_book *book, struct device_table *devices,
			    awaited_over_fn *over, void *data);
/* Stops watching; `over` is not called any more. */
void awaited_end(struct awaited *awaited);
/* Frees it, after the loop. Returns NULL; NULL is fine. */
struct awaited *awaited_free(struct awaited *awaited);

/* The process has connected again, and has been answered about a lease that it had. Any other lease, or process, is fine. */
void awaited_back(struct awaited *awaited, uint64_t lease, pid_t pid, uid_t uid);
/* Before that: returns how many bytes of room the lease had, as the last gpuwmd noted, which are charged no more; 0 of any other. */
uint64_t awaited_take_room(struct awaited *awaited, uint64_t lease, pid_t pid, uid_t uid);
/* The grace time is over: nobody is awaited any more. `over` is not called. */
void awaited_give_up(struct awaited *awaited);
/* Returns how many leases are awaited. */
uint64_t awaited_count(const struct awaited *awaited);

#endif
