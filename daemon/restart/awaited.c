#include "awaited.h"

#include "../base/pids.h"

#include <errno.h>
#include <stdlib.h>
#include <unistd.h>
#include <utlist.h>

struct awaited_process {
	struct awaited *awaited;
	uint32_t pid;
	uint64_t started;
	size_t leases; /* that are awaited */
	int pidfd;
	uv_poll_t poll;
	struct awaited_process *prev, *next;
};

struct awaited_lease {
	uint64_t id;
	struct awake_entry *entry; /* NULL: it is not awaited any more */
	struct awaited_process
		*process; /* NULL: it can't be watched, so that the lease is awaited for the whole grace time */
	struct budget_charge room;
};

struct awaited {
	uv_loop_t *loop;
	struct awaited_lease *leases; /* by id */
	size_t count;
	uint64_t left; /* that are awaited */
	struct awaited_process *processes;
	uv_timer_t *turn; /* closes on its own */
	awaited_over_fn *over;
	void *data;
};

/* ---- leases ---- */

static void on_closed(uv_handle_t *handle)
{
	struct awaited_process *process = handle->data;

	close(process->pidfd);
	free(process);
}

/* A lease of the process is not awaited any more. */
static void process_leave(struct awaited_process *process)
{
	if (!process || --process->leases > 0)
		return;
	DL_DELETE(process->awaited->processes, process);
	uv_close((uv_handle_t *)&process->poll, on_closed);
}

static void lease_charge(struct awaited_lease *lease, struct device_table *devices)
{
	struct device *device = device_find(devices, lease->entry->device);

	if (!device || lease->entry->room == 0)
		return;
	budget_adopt(device, lease->entry->room, &lease->room);
	device->rooms += lease->room.bytes;
}

static void on_turn(uv_timer_t *timer)
{
	struct awaited *a = timer->data;

	a->over(a->data);
}

static void lease_give_room(struct awaited_lease *lease)
{
	if (lease->room.device)
		lease->room.device->rooms -= lease->room.bytes;
	budget_release(&lease->room);
}

/* It is back, its process is gone, or nobody waits for it any more. */
static void lease_settle(struct awaited *a, struct awaited_lease *lease)
{
	if (!lease->entry)
		return;
	awake_clear(lease->entry);
	lease->entry = NULL;
	lease_give_room(lease);
	process_leave(lease->process);
	a->left--;
	if (a->left == 0 && a->turn)
		uv_timer_start(a->turn, on_turn, 0, 0);
}

static int by_id(const void *a, const void *b)
{
	const struct awaited_lease *x = a, *y = b;

	return x->id < y->id ? -1 : x->id > y->id;
}

/* Anybody may name any lease. NULL: this process is not awaited for this one. */
static struct awaited_lease *awaited_find(struct awaited *a, uint64_t id, pid_t pid, uid_t uid)
{
	const struct awaited_lease key = {.id = id};
	struct awaited_lease *lease =
		a && a->count > 0 ? bsearch(&key, a->leases, a->count, sizeof(key), by_id) : NULL;

	return lease && lease->entry && lease->entry->pid == (uint32_t)(pid > 0 ? pid : 0) &&
			       lease->entry->uid == uid
		       ? lease
		       : NULL;
}

void awaited_back(struct awaited *a, uint64_t id, pid_t pid, uid_t uid)
{
	struct awaited_lease *lease = awaited_find(a, id, pid, uid);

	if (lease)
		lease_settle(a, lease);
}

uint64_t awaited_take_room(struct awaited *a, uint64_t id, pid_t pid, uid_t uid)
{
	struct awaited_lease *lease = awaited_find(a, id, pid, uid);
	const uint64_t bytes = lease ? lease->room.bytes : 0;

	if (lease)
		lease_give_room(lease);
	return bytes;
}

uint64_t awaited_count(const struct awaited *a)
{
	return a ? a->left : 0;
}

/* ---- processes ---- */

static void on_exit_of(uv_poll_t *poll, int status, int events)
{
	const struct awaited_process *process = poll->data;
	struct awaited *a = process->awaited;

	(void)status;
	(void)events;
	for (size_t i = 0; i < a->count; i++) {
		if (a->leases[i].process == process) /* the last one ends the watch */
			lease_settle(a, &a->leases[i]);
	}
}

static struct awaited_process *process_watch(struct awaited *a, const struct awake_entry *entry, int pidfd)
{
	struct awaited_process *process = calloc(1, sizeof(*process));

	if (!process || uv_poll_init(a->loop, &process->poll, pidfd) < 0) {
		close(pidfd);
		free(process);
		return NULL;
	}
	process->awaited = a;
	process->pid = entry->pid;
	process->started = entry->started;
	process->pidfd = pidfd;
	process->poll.data = process;
	DL_APPEND(a->processes, process);
	uv_poll_start(&process->poll, UV_READABLE, on_exit_of);
	return process;
}

static struct awaited_process *process_watched(const struct awaited *a, const struct awake_entry *entry)
{
	struct awaited_process *process = a->processes;

	while (process && (process->pid != entry->pid || process->started != entry->started))
		process = process->next;
	return process;
}

/* Sets *ret to the lease's process, which is watched; NULL: it can't be. Returns false if the process is gone: its number is nobody's, or another
 * process's. */
static bool process_find(struct awaited *a, const struct awake_entry *entry, struct awaited_process **ret)
{
	uint64_t started;
	int pidfd;

	*ret = entry->pid && entry->started ? process_watched(a, entry) : NULL;
	if (*ret || entry->pid == 0 || entry->started == 0)
		return true;
	pidfd = pid_open((pid_t)entry->pid);
	if (pidfd < 0)
		return pidfd != -ESRCH;
	started = pid_started((pid_t)entry->pid); /* after the pidfd: it is not a third process's by now */
	if (started && started != entry->started) {
		close(pidfd);
		return false;
	}
	*ret = process_watch(a, entry, pidfd);
	return true;
}

/* ---- all ---- */

static void on_turn_closed(uv_handle_t *handle)
{
	free(handle);
}

static void add_all(struct awaited *a, const struct awake_book *book, struct device_table *devices)
{
	for (size_t i = 0; i < book->table->used; i++) {
		struct awake_entry *entry = &book->table->entries[i];
		struct awaited_process *process;

		if (entry->lease == 0)
			continue;
		entry->device[DEVICE_BYTES_MAX] = '\0';
		if (!process_find(a, entry, &process)) {
			awake_clear(entry);
			continue;
		}
		a->leases[a->count] =
			(struct awaited_lease){.id = entry->lease, .entry = entry, .process = process};
		if (process)
			process->leases++;
		lease_charge(&a->leases[a->count++], devices);
	}
	a->left = a->count;
	qsort(a->leases, a->count, sizeof(*a->leases), by_id);
}

static size_t count_noted(const struct awake_book *book)
{
	size_t count = 0;

	for (size_t i = 0; i < book->table->used; i++)
		count += book->table->entries[i].lease != 0;
	return count;
}

struct awaited *awaited_new(uv_loop_t *loop, const struct awake_book *book, struct device_table *devices,
			    awaited_over_fn *over, void *data)
{
	struct awaited *a = calloc(1, sizeof(*a));

	if (!a)
		return NULL;
	*a = (struct awaited){.loop = loop, .over = over, .data = data};
	a->leases = calloc(count_noted(book) + 1, sizeof(*a->leases));
	a->turn = malloc(sizeof(*a->turn));
	if (!a->leases || !a->turn) {
		free(a->leases);
		free(a->turn);
		free(a);
		return NULL;
	}
	uv_timer_init(loop, a->turn);
	a->turn->data = a;
	add_all(a, book, devices);
	return a;
}

void awaited_give_up(struct awaited *a)
{
	if (!a)
		return;
	for (size_t i = 0; i < a->count; i++)
		lease_settle(a, &a->leases[i]);
	uv_timer_stop(a->turn);
}

void awaited_end(struct awaited *a)
{
	if (!a || !a->turn)
		return;
	for (size_t i = 0; i < a->count; i++) { /* they stay noted: the next gpuwmd awaits them */
		lease_give_room(&a->leases[i]);
		if (a->leases[i].entry)
			process_leave(a->leases[i].process);
	}
	uv_close((uv_handle_t *)a->turn, on_turn_closed);
	a->turn = NULL;
}

struct awaited *awaited_free(struct awaited *a)
{
	if (a)
		free(a->leases);
	free(a);
	return NULL;
}
