/* Whether io_uring would read files from the disk faster than the threads that the loader has: both with O_DIRECT and
 * chunks of the same size, into memory that is thrown away, interleaved.
 *
 *   uring [--rounds N] [--depth N] SOURCE
 *
 * Many containers and sandboxes refuse io_uring; then this says so and ends well. */
#include "bench.h"

#include "lib/ceiling.h"
#include "lib/flags.h"
#include "lib/process.h"
#include "lib/report.h"

#include <fcntl.h>
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define ROUNDS_MAX 99
#define DEPTH_MAX 64

/* The kernel's two queues. */
struct queues {
	int fd;
	uint32_t *tail, *mask; /* of what is asked for */
	struct io_uring_sqe *asked;
	uint32_t *head, *end, *done_mask; /* of what is done */
	struct io_uring_cqe *done;
	uint32_t unsent;
};

struct reading {
	const struct files *files;
	uint64_t depth;
	int fds[FILES_MAX];
	char *buffers;
	uint64_t next; /* chunk */
	struct queues queues;
};

struct outcome {
	double gb_s, cpu_s;
	int refused; /* errno */
};

static void *area(int fd, uint64_t offset, size_t bytes)
{
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd, (off_t)offset);

	if (at == MAP_FAILED)
		DIE("mapping the queues of io_uring: %s", strerror(errno));
	return at;
}

/* 0, or what it was refused with. */
static int queues_make(unsigned depth, struct queues *q)
{
	struct io_uring_params p = {0};
	uint32_t *order;
	char *asked, *done;

	q->fd = (int)syscall(SYS_io_uring_setup, depth, &p);
	if (q->fd < 0)
		return errno;
	asked = area(q->fd, IORING_OFF_SQ_RING, p.sq_off.array + p.sq_entries * sizeof(uint32_t));
	done = area(q->fd, IORING_OFF_CQ_RING, p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe));
	q->asked = area(q->fd, IORING_OFF_SQES, p.sq_entries * sizeof(*q->asked));
	q->tail = (void *)(asked + p.sq_off.tail);
	q->mask = (void *)(asked + p.sq_off.ring_mask);
	q->head = (void *)(done + p.cq_off.head);
	q->end = (void *)(done + p.cq_off.tail);
	q->done_mask = (void *)(done + p.cq_off.ring_mask);
	q->done = (void *)(done + p.cq_off.cqes);
	order = (void *)(asked + p.sq_off.array);
	for (uint32_t i = 0; i < p.sq_entries; i++)
		order[i] = i;
	return 0;
}

/* The next chunk goes into this buffer. False: there is none. */
static bool ask(struct reading *r, uint64_t buffer)
{
	struct range range = files_chunk(r->files, r->next, CEILING_CHUNK);
	struct queues *q = &r->queues;
	uint32_t tail = *q->tail;

	if (range.bytes == 0)
		return false;
	r->next++;
	q->asked[tail & *q->mask] = (struct io_uring_sqe){
		.opcode = IORING_OP_READ,
		.fd = r->fds[range.file],
		.addr = (uint64_t)(uintptr_t)(r->buffers + buffer * CEILING_CHUNK),
		.len = (uint32_t)CEILING_CHUNK,
		.off = range.offset,
		.user_data = buffer,
	};
	__atomic_store_n(q->tail, tail + 1, __ATOMIC_RELEASE);
	q->unsent++;
	return true;
}

/* Sends what was asked for and waits for one answer at least: buffers that are free again. */
static size_t answers(struct queues *q, uint64_t free[DEPTH_MAX])
{
	uint32_t head = *q->head;
	size_t count = 0;

	if (syscall(SYS_io_uring_enter, q->fd, q->unsent, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		DIE("io_uring_enter: %s", strerror(errno));
	q->unsent = 0;
	for (; head != __atomic_load_n(q->end, __ATOMIC_ACQUIRE) && count < DEPTH_MAX; head++) {
		const struct io_uring_cqe *answer = &q->done[head & *q->done_mask];

		if (answer->res <= 0)
			DIE("reading through io_uring: %s", strerror(-answer->res));
		free[count++] = answer->user_data;
	}
	__atomic_store_n(q->head, head, __ATOMIC_RELEASE);
	return count;
}

static void read_all(struct reading *r)
{
	uint64_t free[DEPTH_MAX];
	size_t busy = 0, count;

	while (busy < r->depth && ask(r, busy))
		busy++;
	while (busy > 0) {
		count = answers(&r->queues, free);
		busy -= count;
		while (count > 0 && ask(r, free[--count]))
			busy++;
	}
}

static void run(void *data, void *result)
{
	struct reading *r = data;
	struct outcome *outcome = result;
	double begin, cpu;

	outcome->refused = queues_make((unsigned)r->depth, &r->queues);
	if (outcome->refused)
		return;
	r->buffers = memory_of(r->depth * CEILING_CHUNK);
	for (size_t i = 0; i < r->files->count; i++) {
		r->fds[i] = open(r->files->file[i].path, O_RDONLY | O_CLOEXEC | O_DIRECT);
		if (r->fds[i] < 0)
			DIE("%s: %s", r->files->file[i].path, strerror(errno));
	}
	begin = now_us();
	cpu = cpu_s();
	read_all(r);
	outcome->cpu_s = cpu_s() - cpu;
	outcome->gb_s = (double)r->files->bytes / 1e3 / (now_us() - begin);
}

static int measure(struct reading *r, size_t rounds)
{
	static double threads[2][ROUNDS_MAX], uring[2][ROUNDS_MAX];
	struct outcome outcome = {0};

	for (size_t i = 0; i < rounds; i++) {
		struct ceiling direct = ceiling_direct(r->files);

		child_run(run, r, &outcome, sizeof outcome);
		if (outcome.refused) {
			heading("io_uring is refused here: %s", strerror(outcome.refused));
			return 0;
		}
		threads[0][i] = direct.gb_s;
		threads[1][i] = direct.cpu_s;
		uring[0][i] = outcome.gb_s;
		uring[1][i] = outcome.cpu_s;
	}
	result(percentile(threads[0], rounds, 0.5), "GB/s", "%d threads, O_DIRECT (%.2f s of CPU)",
	       CEILING_READERS_MAX, percentile(threads[1], rounds, 0.5));
	result(percentile(uring[0], rounds, 0.5), "GB/s", "io_uring, depth %zu, O_DIRECT (%.2f s of CPU)",
	       (size_t)r->depth, percentile(uring[1], rounds, 0.5));
	return 0;
}

int main(int argc, char **argv)
{
	static struct files files;
	static struct reading reading = {.files = &files, .depth = CEILING_READERS_MAX};
	size_t rounds = 9;
	const struct flag flags[] = {{"rounds", .number = &rounds}, {"depth", .number = &reading.depth}, {0}};

	flags_read(argc, argv, flags);
	if (optind + 1 != argc || rounds < 1 || rounds > ROUNDS_MAX || reading.depth < 1 ||
	    reading.depth > DEPTH_MAX)
		DIE("usage: uring [--rounds N] [--depth N] SOURCE");
	files_of(argv[optind], &files);
	files_evict(&files);
	return measure(&reading, rounds);
}
