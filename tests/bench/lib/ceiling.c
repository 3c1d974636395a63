#include "ceiling.h"

#include "../bench.h"
#include "driver.h"
#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>

#define ALIGNMENT 4096

/* Where children meet before they copy, and when each of them did: memory that they share. */
struct gate {
	unsigned wanted, there;
	struct {
		double begin_us, end_us;
	} times[CEILING_GPUS_MAX];
};

struct plan {
	const char *device; /* NULL: nothing is kept */
	const struct files *files; /* NULL: no files, only copies */
	uint64_t bytes;
	bool direct;
	unsigned readers; /* 0: up to CEILING_READERS_MAX */
	struct gate *gate; /* NULL: nobody else copies */
	unsigned number; /* of this child at the gate */
};

/* The readers' own. */
struct readers {
	const struct plan *plan;
	int fds[FILES_MAX];
	uint64_t next; /* chunk, atomic */
	unsigned count;
	char *ring; /* two chunks a reader, and room to align them */
	char *to; /* host: the memfd, chunk by chunk */
	uint64_t gpu_base; /* the same on a GPU */
	void *stream;
};

struct reader {
	pthread_t thread;
	struct readers *all;
	unsigned number;
};

bool is_gpu(const char *device)
{
	return strcmp(device, "host") != 0;
}

double cpu_s(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

static uint64_t own_peak(void)
{
	struct usage usage;

	if (!usage_of(getpid(), &usage))
		DIE("/proc tells nothing of this process");
	return usage.peak_bytes;
}

/* Touched; the huge pages only help. */
void *memory_of(uint64_t bytes)
{
	void *area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (area == MAP_FAILED)
		DIE("no %llu bytes of memory", (unsigned long long)bytes);
	madvise(area, bytes, MADV_HUGEPAGE);
	memset(area, 1, bytes);
	return area;
}

/* ---- a GPU's side ---- */

#ifdef GPUWM_CUDA

static uint64_t gpu_memory(uint64_t bytes)
{
	CUmemAllocationProp properties = driver_properties();
	CUmemAccessDesc access = driver_access(CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
	CUmemGenericAllocationHandle handle;
	CUdeviceptr address;

	bytes = (bytes + MIB(2) - 1) & ~(MIB(2) - 1);
	CU(driver.cuMemCreate(&handle, bytes, &properties, 0));
	CU(driver.cuMemAddressReserve(&address, bytes, 0, 0, 0));
	CU(driver.cuMemMap(address, bytes, 0, handle, 0));
	CU(driver.cuMemSetAccess(address, bytes, &access, 1));
	return address;
}

static void *gpu_begin(const struct plan *plan, struct ceiling *ceiling)
{
	CUstream stream;

	driver_open(plan->device);
	driver_context();
	ceiling->peak_bytes = own_peak();
	CU(driver.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
	return stream;
}

static void gpu_pin(void *ring, uint64_t bytes)
{
	CU(driver.cuMemHostRegister_v2(ring, bytes, 0));
}

static void gpu_attach_thread(void)
{
	driver_context();
}

static void *gpu_event(void)
{
	CUevent event;

	CU(driver.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
	return event;
}

static void gpu_copy(uint64_t to, const void *from, uint64_t bytes, void *stream, void *event)
{
	CU(driver.cuMemcpyHtoDAsync_v2(to, from, bytes, stream));
	CU(driver.cuEventRecord(event, stream));
}

static void gpu_wait(void *event)
{
	CU(driver.cuEventSynchronize(event));
}

static void gpu_finish(void *stream)
{
	CU(driver.cuStreamSynchronize(stream));
}

#else

static uint64_t gpu_memory(uint64_t bytes)
{
	DIE("built without CUDA: %llu", (unsigned long long)bytes);
}
static void *gpu_begin(const struct plan *plan, struct ceiling *ceiling)
{
	(void)plan, (void)ceiling;
	DIE("built without CUDA");
}
static void gpu_pin(void *ring, uint64_t bytes)
{
	(void)ring, (void)bytes;
}
static void gpu_attach_thread(void)
{
}
static void *gpu_event(void)
{
	return NULL;
}
static void gpu_copy(uint64_t to, const void *from, uint64_t bytes, void *stream, void *event)
{
	(void)to, (void)from, (void)bytes, (void)stream, (void)event;
}
static void gpu_wait(void *event)
{
	(void)event;
}
static void gpu_finish(void *stream)
{
	(void)stream;
}

#endif

/* ---- pinned memory to a GPU ---- */

static void gate_pass(struct gate *gate)
{
	if (!gate)
		return;
	__atomic_fetch_add(&gate->there, 1, __ATOMIC_RELAXED);
	while (__atomic_load_n(&gate->there, __ATOMIC_RELAXED) < gate->wanted)
		;
}

static void run_pinned(void *data, void *result)
{
	enum { SLOTS = 16 };
	const struct plan *plan = data;
	struct ceiling *ceiling = result;
	void *stream = gpu_begin(plan, ceiling), *events[SLOTS];
	char *ring = memory_of(SLOTS * CEILING_CHUNK);
	uint64_t to = gpu_memory(plan->bytes), count = plan->bytes / CEILING_CHUNK;
	double begin;

	gpu_pin(ring, SLOTS * CEILING_CHUNK);
	for (int i = 0; i < SLOTS; i++) {
		events[i] = gpu_event();
		gpu_copy(to, ring + (uint64_t)i * CEILING_CHUNK, CEILING_CHUNK, stream, events[i]);
	}
	gpu_finish(stream);
	gate_pass(plan->gate);
	begin = now_us();
	for (uint64_t i = 0; i < count; i++) {
		gpu_wait(events[i % SLOTS]);
		gpu_copy(to + i * CEILING_CHUNK, ring + i % SLOTS * CEILING_CHUNK, CEILING_CHUNK, stream,
			 events[i % SLOTS]);
	}
	gpu_finish(stream);
	if (plan->gate) {
		plan->gate->times[plan->number].begin_us = begin;
		plan->gate->times[plan->number].end_us = now_us();
	}
	ceiling->gb_s = (double)(count * CEILING_CHUNK) / 1e3 / (now_us() - begin);
}

struct ceiling ceiling_pinned(const char *device, uint64_t bytes)
{
	struct plan plan = {.device = device, .bytes = bytes};
	struct ceiling ceiling;

	if (bytes < CEILING_CHUNK)
		plan.bytes = CEILING_CHUNK;
	child_run(run_pinned, &plan, &ceiling, sizeof ceiling);
	return ceiling;
}

/* From the first one's begin to the last one's end. */
static double gate_us(const struct gate *gate)
{
	double begin = gate->times[0].begin_us, end = gate->times[0].end_us;

	for (unsigned i = 1; i < gate->wanted; i++) {
		begin = gate->times[i].begin_us < begin ? gate->times[i].begin_us : begin;
		end = gate->times[i].end_us > end ? gate->times[i].end_us : end;
	}
	return end - begin;
}

double ceiling_links(const char *const *devices, size_t count, uint64_t bytes)
{
	struct gate *gate =
		mmap(NULL, sizeof(*gate), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[CEILING_GPUS_MAX];
	double us;

	if (gate == MAP_FAILED || count > CEILING_GPUS_MAX)
		DIE("no room for %zu GPUs", count);
	gate->wanted = (unsigned)count;
	fflush(NULL);
	for (size_t i = 0; i < count; i++) {
		struct plan plan = {.device = devices[i], .bytes = bytes, .gate = gate, .number = (unsigned)i};
		struct ceiling ceiling;

		pids[i] = fork();
		if (pids[i] == 0) {
			run_pinned(&plan, &ceiling);
			_exit(0);
		}
	}
	for (size_t i = 0; i < count; i++) {
		int status;

		if (pids[i] < 0 || waitpid(pids[i], &status, 0) != pids[i] || status != 0)
			DIE("a measuring child failed");
	}
	us = gate_us(gate);
	munmap(gate, sizeof(*gate));
	return (double)(count * (bytes / CEILING_CHUNK * CEILING_CHUNK)) / 1e3 / us;
}

/* ---- files ---- */

static void read_range(const struct readers *all, const struct range *range, char *to)
{
	uint64_t bytes = range->bytes, done = 0;

	/* The last chunk's end too: the kernel gives what there is. */
	if (all->plan->direct)
		bytes = (bytes + ALIGNMENT - 1) & ~(uint64_t)(ALIGNMENT - 1);
	while (done < range->bytes) {
		ssize_t r =
			pread(all->fds[range->file], to + done, bytes - done, (off_t)(range->offset + done));

		if (r <= 0)
			DIE("%s: %s", all->plan->files->file[range->file].path,
			    r ? strerror(errno) : "it ends too early");
		done += (uint64_t)r;
	}
}

static void *read_on(void *data)
{
	struct reader *reader = data;
	struct readers *all = reader->all;
	bool gpu = all->gpu_base != 0;
	char *buffers = all->ring ? all->ring + reader->number * 2 * CEILING_CHUNK : NULL;
	void *events[2] = {0};

	if (gpu) {
		gpu_attach_thread();
		events[0] = gpu_event();
		events[1] = gpu_event();
	}
	for (unsigned slot = 0;; slot ^= 1) {
		uint64_t number = __atomic_fetch_add(&all->next, 1, __ATOMIC_RELAXED);
		struct range range = files_chunk(all->plan->files, number, CEILING_CHUNK);
		char *to = all->to ? all->to + number * CEILING_CHUNK : buffers + slot * CEILING_CHUNK;

		if (range.bytes == 0)
			return NULL;
		if (gpu)
			gpu_wait(events[slot]);
		read_range(all, &range, to);
		if (gpu)
			gpu_copy(all->gpu_base + number * CEILING_CHUNK, to, range.bytes, all->stream,
				 events[slot]);
	}
}

static void read_all(struct readers *all)
{
	struct reader *readers = calloc(all->count, sizeof(*readers));

	for (unsigned i = 0; i < all->count; i++) {
		readers[i] = (struct reader){.all = all, .number = i};
		if (pthread_create(&readers[i].thread, NULL, read_on, &readers[i]) != 0)
			DIE("no thread");
	}
	for (unsigned i = 0; i < all->count; i++)
		pthread_join(readers[i].thread, NULL);
	free(readers);
}

static void open_all(struct readers *all)
{
	for (size_t i = 0; i < all->plan->files->count; i++) {
		all->fds[i] = open(all->plan->files->file[i].path,
				   O_RDONLY | O_CLOEXEC | (all->plan->direct ? O_DIRECT : 0));
		if (all->fds[i] < 0)
			DIE("%s: %s", all->plan->files->file[i].path, strerror(errno));
	}
}

static char *host_memory(uint64_t bytes)
{
	int fd = memfd_create("bench", MFD_CLOEXEC);
	void *area = MAP_FAILED;

	if (fd >= 0 && ftruncate(fd, (off_t)bytes) == 0)
		area = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (area == MAP_FAILED)
		DIE("a memfd of %llu bytes: %s", (unsigned long long)bytes, strerror(errno));
	return area;
}

static void run_read(void *data, void *result)
{
	static struct readers all;
	const struct plan *plan = data;
	struct ceiling *ceiling = result;
	long processors = sysconf(_SC_NPROCESSORS_ONLN);
	uint64_t room = plan->bytes + plan->files->count * CEILING_CHUNK;
	double begin, cpu;

	all.plan = plan;
	all.count =
		plan->direct || processors > CEILING_READERS_MAX ? CEILING_READERS_MAX : (unsigned)processors;
	if (plan->readers)
		all.count = plan->readers;
	open_all(&all);
	ceiling->peak_bytes = own_peak();
	if (plan->device && is_gpu(plan->device))
		all.stream = gpu_begin(plan, ceiling);
	if (plan->device && !is_gpu(plan->device))
		all.to = host_memory(room);
	else
		all.ring = memory_of(all.count * 2 * CEILING_CHUNK);
	if (all.stream) {
		gpu_pin(all.ring, all.count * 2 * CEILING_CHUNK);
		all.gpu_base = gpu_memory(room);
	}
	begin = now_us();
	cpu = cpu_s();
	read_all(&all);
	if (all.gpu_base)
		gpu_finish(all.stream);
	ceiling->cpu_s = cpu_s() - cpu;
	ceiling->gb_s = (double)plan->bytes / 1e3 / (now_us() - begin);
}

struct ceiling ceiling_read(const char *device, const struct files *files)
{
	struct plan plan = {.device = device, .files = files, .bytes = files->bytes};
	struct ceiling ceiling;

	child_run(run_read, &plan, &ceiling, sizeof ceiling);
	return ceiling;
}

struct ceiling ceiling_pread(const struct files *files)
{
	struct plan plan = {
		.files = files, .bytes = files->bytes, .readers = (unsigned)sysconf(_SC_NPROCESSORS_ONLN)};
	struct ceiling ceiling;

	child_run(run_read, &plan, &ceiling, sizeof ceiling);
	return ceiling;
}

struct ceiling ceiling_direct(const struct files *files)
{
	struct plan plan = {.files = files, .bytes = files->bytes, .direct = true};
	struct ceiling ceiling;

	child_run(run_read, &plan, &ceiling, sizeof ceiling);
	return ceiling;
}
