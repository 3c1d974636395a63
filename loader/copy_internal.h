/* The inside of a copy, which its readers (copy_reader.c) share with copy.c, which runs them. */
#ifndef GPUWM_LOADER_COPY_INTERNAL_H
#define GPUWM_LOADER_COPY_INTERNAL_H

#include "copy.h"
#include "lanes.h"
#include "piece.h"

#include <pthread.h>

/* The readers of one copy, and what they share. */
struct crew {
	const struct copy *copy;
	const struct copy_target *hosts; /* the targets, if there are no lanes */
	size_t host_count;
	bool straight; /* bytes go straight into the memory of the only host */
	bool small_pages; /* that memory has small pages: one reader at a time writes it by calls */
	size_t chunk;
	struct reader *files; /* one for each file */
	struct digest_sum *sums; /* one for each tensor; atomic */
	uint64_t done; /* bytes; atomic */
	bool stop; /* atomic */
	bool calls_in_use; /* atomic: one of the readers writes by calls now */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	pthread_cond_t opened; /* the lanes are open, or a slot is free */
	struct lanes *lanes; /* NULL: they are not open yet, or none are needed */
	double began; /* when the lanes were opened */
	pthread_t threads[COPY_READERS_MAX];
	unsigned started, wanted, most; /* numbers of readers */
	struct piece_cursor next;
	/* the slots of the ring that no reader has; the first one was sent longest ago */
	size_t *slots;
	size_t slot_count, usable; /* slots from `usable` on are sent once, and not used again */
	unsigned running;
	struct read_counts counts;
	struct error error; /* the error of the first reader that failed */
};

static inline bool crew_stopped(const struct crew *crew)
{
	return __atomic_load_n(&crew->stop, __ATOMIC_RELAXED);
}

/* Makes each reader end after its present step. */
static inline void crew_stop(struct crew *crew)
{
	__atomic_store_n(&crew->stop, true, __ATOMIC_RELAXED);
}

void counts_add(struct read_counts *total, const struct read_counts *counts);

/* The thread of a reader: takes pieces until there are no more, or the crew is stopped. */
void *copy_reader(void *crew);

#endif
