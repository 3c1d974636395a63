#include "ipc_copy.h"
#include "../../base/clock.h"

#include <errno.h>
#include <stdlib.h>

const char *ipc_copy_state_name(enum ipc_copy_state state)
{
	static const char *const names[] = {[COPY_FILLING] = "filling",
					    [COPY_READY] = "ready",
					    [COPY_LOST] = "lost",
					    [COPY_ENDED] = "ended"};

	return names[state];
}

struct device *ipc_copy_device(const struct ipc_copy *copy)
{
	return copy->version->replicas[copy->replica].device;
}

static int ipc_copy_charge(struct ipc_copy *copy, struct quota *quota, struct error *error)
{
	struct device *device = ipc_copy_device(copy);
	struct budget_charge bytes = {0};
	int r = quota_charge(quota, copy->uid, QUOTA_COPIES, &copy->count, error);

	if (r == 0)
		r = budget_check_with_context(device, copy->bytes, error);
	if (r == 0)
		r = budget_charge(device, copy->bytes, &bytes, error);
	if (r == 0)
		r = budget_charge_user(&bytes, quota, copy->uid, error);
	if (r == 0) {
		copy->charge = shared_charge_new(&bytes);
		if (!copy->charge)
			r = error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	}
	if (r < 0) {
		budget_release(&bytes);
		quota_release(&copy->count);
	}
	return r;
}

int ipc_copy_add(struct ipc_copy_table *table, struct version *version, uint32_t replica, uid_t uid,
		 struct ipc_copy **ret_copy, struct error *error)
{
	struct ipc_copy *copy;
	int r;

	if (table->count >= COPIES_MAX)
		return error_set(error, -EDQUOT,
				 "end processes that attach by cuda_ipc, or attach by descriptors",
				 "gpuwmd has all %d copies by CUDA IPC that it may have", COPIES_MAX);
	copy = calloc(1, sizeof(*copy));
	if (!copy)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	copy->version = version;
	copy->replica = replica;
	copy->uid = uid;
	copy->since_ms = clock_wall_ms();
	copy->bytes = version->replicas[replica].bytes;
	r = ipc_copy_charge(copy, table->quota, error);
	if (r < 0) {
		free(copy);
		return r;
	}
	copy->next = table->first;
	table->first = copy;
	table->count++;
	table->bytes += copy->bytes;
	*ret_copy = copy;
	return 0;
}

void ipc_copy_free(struct ipc_copy_table *table, struct ipc_copy *copy)
{
	struct ipc_copy **link = &table->first;

	while (*link != copy)
		link = &(*link)->next;
	*link = copy->next;
	table->count--;
	table->bytes -= copy->bytes;
	shared_charge_leave(copy->charge);
	quota_release(&copy->count);
	free(copy->handles);
	free(copy);
}

void ipc_copy_table_clear(struct ipc_copy_table *table)
{
	while (table->first)
		ipc_copy_free(table, table->first);
}

struct ipc_copy *ipc_copy_find(const struct ipc_copy_table *table, const struct version *version,
			       uint32_t replica, uid_t uid)
{
	struct ipc_copy *copy = table->first;

	while (copy && (copy->state > COPY_READY || copy->version != version || copy->replica != replica ||
			copy->uid != uid))
		copy = copy->next;
	return copy;
}

void ipc_copy_join(struct ipc_copy *copy, struct lease *lease)
{
	lease->copy = copy;
	copy->lease_count++;
	copy->idle_ms = 0;
}

void ipc_copy_leave(struct lease *lease, uint64_t now_ms)
{
	struct ipc_copy *copy = lease->copy;

	if (!copy)
		return;
	lease->copy = NULL;
	if (--copy->lease_count == 0)
		copy->idle_ms = now_ms;
}

void ipc_copy_lose(struct ipc_copy *copy, const struct error *why)
{
	error_set(&copy->error, -EOWNERDEAD, why->detail,
		  "its copy is gone with the holder, gpuwm-loader (pid %llu): %s",
		  (unsigned long long)copy->pid, why->message);
	copy->state = COPY_LOST;
}
