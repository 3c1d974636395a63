#include "region.h"

#include "../../base/clock.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct gpuwm_region *regions; /* under fork_lock: what this process has open */

/* A child is no user of its parent's regions, and may open them itself. */
static void in_child(void *object)
{
	const struct gpuwm_region *region = object;

	if (region->control_fd >= 0)
		close(region->control_fd);
	if (region->memory_fd >= 0)
		close(region->memory_fd);
	regions = NULL;
}

/* Ends the process's own use, after the last use of an export too: gpuwm_region_close frees the region. */
static int never_reaped(struct keep *keep)
{
	(void)keep;
	return 0;
}

/* ---- kinds -------------------------------------------------------------- */

static const char *const kind_names[] = {
	[GPUWM_REGION_POOL] = REGION_KIND_POOL,
	[GPUWM_REGION_QUEUE] = REGION_KIND_QUEUE,
	[GPUWM_REGION_BLOCKS] = REGION_KIND_BLOCKS,
	[GPUWM_REGION_SCRATCH] = REGION_KIND_SCRATCH,
};
#define KINDS (sizeof(kind_names) / sizeof(*kind_names))

const char *region_kind_name(enum gpuwm_region_kind kind)
{
	return (unsigned)kind < KINDS ? kind_names[kind] : "unknown";
}

int region_kind_of(const char *name, enum gpuwm_region_kind *ret, struct error *error)
{
	for (unsigned i = 0; i < KINDS; i++) {
		if (strcmp(kind_names[i], name) == 0) {
			*ret = (enum gpuwm_region_kind)i;
			return 0;
		}
	}
	return error_set(error, -ENOTSUP, "use the libgpuwm-client of gpuwmd's release",
			 "this libgpuwm-client knows no regions of kind \"%s\"", name);
}

/* ---- making ------------------------------------------------------------ */

static void take_facts(struct gpuwm_region *region, const struct region_use *use)
{
	region->id = *use->region;
	region->use = *use->use;
	hex128_format(region->id.bytes, region->id_text);
	snprintf(region->name, sizeof(region->name), "%s", use->name ? use->name : "");
	snprintf(region->device.id, sizeof(region->device.id), "%s", use->device);
	region->writers =
		strcmp(use->writers, REGION_WRITERS_MANY) == 0 ? GPUWM_WRITERS_MANY : GPUWM_WRITERS_ONE;
	region->owner = strcmp(use->owner, REGION_OWNER_UID) == 0 ? GPUWM_OWNER_UID : GPUWM_OWNER_PROCESS;
	region->bytes = use->bytes;
	region->ttl_ms = use->ttl_ms;
	region->item_bytes = (uint32_t)use->item_bytes;
	region->control.count = (uint32_t)use->chunks;
	region->control.blocks.count = (uint32_t)use->blocks;
	region->block_bytes = use->block_bytes;
	region->clear = use->clear;
	region->slot = (unsigned)use->slot;
	region->writes = use->write;
	region->owns = use->owns;
}

int region_begin(struct gpuwm_client *client, const struct region_use *use, struct gpuwm_region **ret,
		 struct error *error)
{
	struct gpuwm_region *region = calloc(1, sizeof(*region));
	int r = region ? region_kind_of(use->kind, &region->kind, error)
		       : error_set(error, -ENOMEM, NULL, "out of memory for a region");

	if (r < 0) {
		free(region);
		return r;
	}
	region->control_fd = region->memory_fd = -1;
	take_facts(region, use);
	pthread_mutex_init(&region->words_lock, NULL);
	pthread_mutex_init(&region->queue_lock, NULL);
	clock_condition(&region->queue_unlocked);
	keep_init(&region->keep, never_reaped);
	if (client)
		region->client = client_keep(client);
	fork_watch(&region->hook, in_child, region);
	*ret = region;
	return 0;
}

static int map_control(struct gpuwm_region *region, struct error *error)
{
	const uint64_t bytes = control_bytes(control_shape(&region->control));
	struct stat st;
	void *address;

	if (fstat(region->control_fd, &st) < 0 || (uint64_t)st.st_size != bytes)
		return error_set(error, -EPROTO, NULL,
				 "the control memory of %u chunks and %u blocks has not %llu bytes",
				 region->control.count, region->control.blocks.count,
				 (unsigned long long)bytes);
	address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, region->control_fd, 0);
	if (address == MAP_FAILED)
		return error_set(error, -errno, NULL, "mapping %llu bytes of control memory failed: %s",
				 (unsigned long long)bytes, strerror(errno));
	madvise(address, bytes, MADV_DONTFORK);
	region->control = control_at(address, control_shape(&region->control));
	return 0;
}

int region_map(struct gpuwm_region *region, struct error *error)
{
	char id[DEVICE_BYTES_MAX + 1];
	uint64_t unit = 1;
	int r;

	if (region->looks)
		return map_control(region, error);
	strcpy(id, region->device.id);
	r = memory_device_open(id, &region->device, error);
	if (r == 0)
		r = map_control(region, error);
	if (r == 0)
		r = region->device.ops->granularity(&region->device, &unit, error);
	if (r < 0)
		return r;
	return region->device.ops->map_shared(
		&region->device, region->memory_fd, (region->bytes + unit - 1) / unit * unit,
		region->writes ? MEMORY_WRITE : MEMORY_READ, &region->memory, error);
}

void region_close_fds(struct gpuwm_region *region)
{
	fork_lock();
	if (region->control_fd >= 0)
		close(region->control_fd);
	if (region->memory_fd >= 0)
		close(region->memory_fd);
	region->control_fd = region->memory_fd = -1;
	fork_unlock();
}

void region_free(struct gpuwm_region *region)
{
	if (region->memory.address)
		region->device.ops->unmap_shared(&region->device, &region->memory);
	if (region->holds_context)
		region->device.ops->unhold(&region->device);
	if (region->control.head)
		munmap(region->control.head, control_bytes(control_shape(&region->control)));
	region_close_fds(region);
	fork_unwatch(&region->hook);
	client_drop(region->line);
	client_drop(region->client);
	pthread_mutex_destroy(&region->words_lock);
	/* queue_unlocked is left: in a forked child, its end would wait for threads that only the parent has. */
	pthread_mutex_destroy(&region->queue_lock);
	free(region);
}

/* ---- the list of open regions ------------------------------------------ */

static struct gpuwm_region *list_find(const struct version_id *id)
{
	struct gpuwm_region *region = regions;

	while (region && !version_id_equal(&region->id, id))
		region = region->next;
	return region;
}

int region_list_add(struct gpuwm_region *region, struct error *error)
{
	bool open;

	fork_lock();
	open = list_find(&region->id);
	if (!open) {
		region->next = regions;
		regions = region;
	}
	fork_unlock();
	if (!open)
		return 0;
	return error_set(error, -EALREADY, "use the one that the process has open",
			 "this process has opened region %s already", region_title(region));
}

void region_list_remove(struct gpuwm_region *region)
{
	struct gpuwm_region **link = &regions;

	fork_lock();
	while (*link && *link != region)
		link = &(*link)->next;
	if (*link)
		*link = region->next;
	fork_unlock();
}

struct gpuwm_region *region_list_use(const struct version_id *id)
{
	struct gpuwm_region *region;

	fork_lock();
	region = list_find(id);
	if (region)
		atomic_fetch_add(&region->handles, 1);
	fork_unlock();
	return region;
}

void region_unuse(struct gpuwm_region *region)
{
	atomic_fetch_sub(&region->handles, 1);
}

int region_claim(struct gpuwm_region *region, struct error *error)
{
	uint32_t handles;

	fork_lock();
	handles = atomic_load(&region->handles);
	if (handles == 0 && keep_claim(&region->keep)) {
		region_list_remove(region);
		fork_unlock();
		return 0;
	}
	fork_unlock();
	return error_set(error, -EBUSY, "finish, offer or discard every chunk, and delete every export",
			 "region %s can't be closed: %u chunks and %u exports of it are alive",
			 region_title(region), handles, keep_others(&region->keep));
}

void region_claim_undo(struct gpuwm_region *region)
{
	struct error unused;

	keep_put_back(&region->keep);
	region_list_add(region, &unused);
}

/* ---- checks ------------------------------------------------------------ */

const char *region_title(const struct gpuwm_region *region)
{
	return region->name[0] ? region->name : region->id_text;
}

void region_user_text(const struct gpuwm_region *region, unsigned slot, char ret[REGION_USER_TEXT])
{
	const struct control_user *user;
	char command[CONTROL_COMMAND_BYTES + 1] = "";
	uint32_t pid;

	if (slot >= REGION_USERS_MAX) {
		snprintf(ret, REGION_USER_TEXT, "an unknown process");
		return;
	}
	user = &region->control.head->users[slot];
	pid = atomic_load(&user->pid);
	memcpy(command, user->command, CONTROL_COMMAND_BYTES);
	if (pid)
		snprintf(ret, REGION_USER_TEXT, "process %u (%s)", pid, command);
	else
		snprintf(ret, REGION_USER_TEXT, "a process of another PID namespace (%s)", command);
}

int region_usable(const struct gpuwm_region *region, enum gpuwm_region_kind kind, struct error *error)
{
	int r;

	if (!region)
		return error_set(error, -EINVAL, NULL, "no region was given");
	r = fork_check(&region->hook, error);
	if (r == 0 && region->kind != kind)
		return error_set(error, -EINVAL, NULL, "region %s is of kind %s, not %s", region_title(region),
				 region_kind_name(region->kind), region_kind_name(kind));
	return r;
}

int region_running(const struct gpuwm_region *region, struct error *error)
{
	const uint32_t end = atomic_load(&region->control.head->ended);
	char who[REGION_USER_TEXT];

	if (end == CONTROL_OPEN)
		return 0;
	region_user_text(region, atomic_load(&region->control.head->ended_by), who);
	switch (end) {
	case CONTROL_OWNER_DIED:
		return error_set(error, -EOWNERDEAD, NULL, "region %s has ended: its owner, %s, has exited",
				 region_title(region), who);
	case CONTROL_OWNER_CLOSED:
		return error_set(error, -ESHUTDOWN, NULL, "region %s has ended: its owner, %s, has closed it",
				 region_title(region), who);
	case CONTROL_REMOVED:
		return error_set(error, -ESHUTDOWN, NULL, "region %s has ended: it was removed",
				 region_title(region));
	default:
		return error_set(error, -ESHUTDOWN, "make another region, for users that can be trusted",
				 "region %s has ended: a user of it has damaged its control memory",
				 region_title(region));
	}
}

int gpuwm_region_check(const struct gpuwm_region *region)
{
	struct error error;
	int r = region ? fork_check(&region->hook, &error)
		       : error_set(&error, -EINVAL, NULL, "no region was given");

	if (r == 0)
		r = region_running(region, &error);
	return r < 0 ? client_fail(&error) : 0;
}

void *gpuwm_region_address(const struct gpuwm_region *region)
{
	return region->memory.address;
}
