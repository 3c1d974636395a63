#include "pools.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#ifdef GPUWM_CUDA
#include "memory/cuda.h"
#endif

static struct error error;

bool pools_on_host(void)
{
	const char *backend = getenv("GPUWM_TEST_BACKEND");

	return !backend || strcmp(backend, "host") == 0;
}

void need_streams(void)
{
	if (pools_on_host())
		cr_skip_test("host memory has no streams");
}

void need_host(void)
{
	if (!pools_on_host())
		cr_skip_test("a child process can't use its parent's driver");
}

/* ---- gpuwmd's part --------------------------------------------------------- */

static void find_device(struct memory_device *ret)
{
	char id[DEVICE_BYTES_MAX + 1] = "host";

#ifdef GPUWM_CUDA
	if (!pools_on_host())
		cr_assert(eq(int, cuda_id(0, id, &error), 0), "%s", error.message);
#endif
	cr_assert(eq(int, memory_device_open(id, ret, &error), 0), "%s", error.message);
}

static void make_memory(struct shared_region *shared, uint64_t bytes)
{
	const struct memory_ops *ops = shared->device.ops;
	struct memory_segment segment;
	uint64_t unit;

	cr_assert(eq(int, ops->granularity(&shared->device, &unit, &error), 0));
	bytes = (bytes + unit - 1) / unit * unit;
	cr_assert(eq(int, ops->create(&shared->device, bytes, &segment, &error), 0), "%s", error.message);
	cr_assert(eq(int, ops->share(&shared->device, &segment, &error), 0), "%s", error.message);
	shared->memory_fd = dup(segment.fd);
	ops->release(&shared->device, &segment);
}

static void make_control(struct shared_region *shared)
{
	const struct control_shape shape = {(uint32_t)shared->facts.chunks, (uint32_t)shared->facts.blocks};
	const uint64_t bytes = control_bytes(shape);
	void *address;

	shared->control_fd = memfd_create("control", MFD_CLOEXEC);
	cr_assert(eq(int, ftruncate(shared->control_fd, (off_t)bytes), 0));
	address = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, shared->control_fd, 0);
	cr_assert(address != MAP_FAILED);
	shared->control = control_at(address, shape);
	control_begin(&shared->control, &shared->id);
}

void share(struct shared_region *shared, const struct shared_wish *wish)
{
	const bool queue = wish->items > 0, blocks = wish->blocks > 0;
	const uint64_t cell = queue ? wish->item_bytes + QUEUE_CELL_HEAD_BYTES : 0;

	*shared = (struct shared_region){0};
	cr_assert(eq(int, version_id_new(&shared->id), 0));
	if (queue)
		cr_assert(eq(int, memory_device_open("host", &shared->device, &error), 0));
	else
		find_device(&shared->device);
	shared->facts = (struct region_use){
		.region = &shared->id,
		.use = &shared->id,
		.name = queue    ? "queue"
			: blocks ? "blocks"
				 : "pool",
		.device = shared->device.id,
		.kind = queue    ? REGION_KIND_QUEUE
			: blocks ? REGION_KIND_BLOCKS
				 : REGION_KIND_POOL,
		.writers = queue || blocks || wish->by_uid ? REGION_WRITERS_MANY : REGION_WRITERS_ONE,
		.owner = blocks || wish->by_uid ? REGION_OWNER_UID : REGION_OWNER_PROCESS,
		.bytes = wish->bytes + cell * wish->items + wish->blocks * wish->block_bytes,
		.chunks = wish->chunks,
		.item_bytes = cell,
		.ttl_ms = wish->ttl_ms,
		.blocks = wish->blocks,
		.block_bytes = wish->block_bytes,
	};
	make_memory(shared, shared->facts.bytes);
	make_control(shared);
}

void share_end(struct shared_region *shared)
{
	munmap(shared->control.head, control_bytes(control_shape(&shared->control)));
	close(shared->control_fd);
	close(shared->memory_fd);
}

void has_exited(struct shared_region *shared, unsigned slot)
{
	control_user_left(&shared->control, slot);
}

/* ---- users ------------------------------------------------------------------ */

static int map(struct shared_region *shared, struct gpuwm_region *region, bool owns)
{
	int r;

	region->control_fd = dup(shared->control_fd);
	region->memory_fd = dup(shared->memory_fd);
	r = region_map(region, &error);
	region_close_fds(region);
	if (r == 0 && owns && region->kind == GPUWM_REGION_POOL)
		r = pool_new(region, &region->pool, &error);
	if (r == 0 && region->kind == GPUWM_REGION_BLOCKS)
		r = blocks_new(region, &region->blocks, &error);
	return r;
}

static int try_open(struct shared_region *shared, unsigned slot, bool owns, bool looks,
		    struct gpuwm_region **ret)
{
	const bool blocks = shared->facts.blocks > 0;
	struct region_use use = shared->facts;
	char command[CONTROL_COMMAND_BYTES] = "user-";
	int r;

	command[5] = (char)('a' + slot);
	use.slot = slot;
	use.owns = owns && !blocks;
	use.write = owns || use.item_bytes > 0;
	control_user_came(&shared->control, slot, 1000 + slot, command);
	cr_assert(eq(int, region_begin(NULL, &use, ret, &error), 0));
	(*ret)->looks = looks;
	r = map(shared, *ret, owns);
	if (r < 0) {
		region_free(*ret);
		control_user_left(&shared->control, slot);
		client_fail(&error);
	}
	return r;
}

int try_open_as(struct shared_region *shared, unsigned slot, bool owns, struct gpuwm_region **ret)
{
	return try_open(shared, slot, owns, false, ret);
}

struct gpuwm_region *open_to_look(struct shared_region *shared, unsigned slot)
{
	struct gpuwm_region *region;

	OK(try_open(shared, slot, false, true, &region));
	return region;
}

struct gpuwm_region *open_as(struct shared_region *shared, unsigned slot, bool owns)
{
	struct gpuwm_region *region;

	OK(try_open_as(shared, slot, owns, &region));
	return region;
}

void close_as(struct shared_region *shared, struct gpuwm_region *region)
{
	const unsigned slot = region->slot;

	OK(gpuwm_region_close(region));
	control_user_left(&shared->control, slot);
}

/* ---- chunks ------------------------------------------------------------------ */

static struct gpuwm_chunk *inside(const struct gpuwm_chunk *chunk)
{
	const struct memory_device *device = &chunk->use.region->device;

	cr_assert(eq(int, device->ops->enter(device, &error), 0));
	return (struct gpuwm_chunk *)chunk;
}

void write_byte(struct gpuwm_chunk *chunk, unsigned char byte)
{
	const struct memory_device *device = &inside(chunk)->use.region->device;

	cr_assert(eq(int, device->ops->write(device, gpuwm_chunk_address(chunk), &byte, 1, &error), 0));
	device->ops->leave(device);
}

unsigned char read_byte(const struct gpuwm_chunk *chunk)
{
	const struct memory_device *device = &inside(chunk)->use.region->device;
	unsigned char byte;

	cr_assert(eq(int, device->ops->read(device, &byte, gpuwm_chunk_address(chunk), 1, &error), 0));
	device->ops->leave(device);
	return byte;
}

struct gpuwm_chunk *alloc(struct gpuwm_region *pool, uint64_t bytes)
{
	struct gpuwm_chunk *chunk;

	OK(gpuwm_chunk_alloc(pool, bytes, 0, &chunk));
	return chunk;
}

struct gpuwm_token offer(struct gpuwm_region *pool, uint64_t bytes, uint32_t named, uint32_t others)
{
	const struct gpuwm_readers readers = {named, others};
	struct gpuwm_token token;

	OK(gpuwm_chunk_offer(alloc(pool, bytes), &readers, &token));
	return token;
}

struct gpuwm_chunk *take(struct gpuwm_region *pool, const struct gpuwm_token *token)
{
	struct gpuwm_chunk *chunk;

	OK(gpuwm_chunk_take(pool, token, 0, &chunk));
	return chunk;
}

void all_is_free(struct gpuwm_region *pool)
{
	struct gpuwm_chunk *chunk;
	struct gpuwm_pool_figures figures;

	OK(gpuwm_pool_figures(pool, &figures));
	cr_assert(eq(u64, figures.used, 0));
	cr_assert(eq(u64, figures.largest_free, figures.free));
	cr_assert(eq(u64, figures.chunks, 0));
	OK(gpuwm_chunk_alloc(pool, figures.free, 0, &chunk));
	OK(gpuwm_chunk_discard(chunk));
}
