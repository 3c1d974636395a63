/* The inside of a copy: what its readers (copy_reader.c) and whoever runs them (copy.c) share. */
#ifndef GPUWM_LOADER_COPY_INTERNAL_H
#define GPUWM_LOADER_COPY_INTERNAL_H

#include "copy.h"
#include "lanes.h"
#include "piece.h"

#include <pthread.h>

/* The readers of one copy and what they share. */
struct crew {
	const struct copy *copy;
	const struct copy_target *hosts; /* the targets, without lanes */
	size_t host_count;
	bool straight; /* into the memory of the only host */
	bool small_pages; /* of that memory: one reader at a time writes it by calls */
	size_t chunk;
	struct reader *files; /* of each file */
	struct digest_sum *sums; /* of each tensor; atomic */
	uint64_t done; /* bytes; atomic */
	bool stop; /* atomic */
	bool writing; /* atomic: a reader writes by calls */
	pthread_mutex_t lock; /* guards what follows */
	pthread_cond_t changed;
	pthread_cond_t opened; /* there are lanes, or there is a slot */
	struct lanes *lanes; /* NULL: not yet, or none are needed */
	double began; /* when they were open */
	pthread_t threads[COPY_READERS_MAX];
	unsigned started, wanted, most; /* readers */
	struct piece_cursor next;
	size_t *slots; /* of the ring that no reader has; the first was sent longest ago */
	size_t slot_count, usable; /* slots from `usable` on are sent once, and left alone then */
	unsigned running;
	struct read_counts counts;
	struct error error; /* the first reader's that failed */
};

static inline bool crew_stopped(const struct crew *crew)
{
	return __atomic_load_n(&crew->stop, __ATOMIC_RELAXED);
}

/* Each reader ends with the step that it is at. */
static inline void crew_stop(struct crew *crew)
{
	__atomic_store_n(&crew->stop, true, __ATOMIC_RELAXED);
}

void counts_add(struct read_counts *total, const struct read_counts *counts);

/* A reader's thread: takes pieces until there are no more, or the crew is stopped. */
void *copy_reader(void *crew);

#endif
