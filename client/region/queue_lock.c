/* The lock of a queue: 1 + the slot of the process that has it. gpuwmd opens it when that process has exited. What the lock guards is
 * changed by one store at a time, so it is in order then. */
#include "../../base/clock.h"
#include "queue.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* A holder copies one message. A process that is stopped, or starved of the CPU, takes longer. */
#define LOCK_MIN_MS 1000

/* A process that was woken may be killed before it takes the lock. */
#define LOCK_LOOK_AGAIN_MS 100

static int lock_between_processes(struct gpuwm_region *queue, int64_t deadline, struct error *error)
{
	struct control_head *head = queue->control.head;
	char who[REGION_USER_TEXT];
	uint32_t seen = 0;
	int r;

	while (!atomic_compare_exchange_strong(&head->lock, &seen, queue->slot + 1)) {
		int64_t ms;

		r = region_running(queue, error);
		if (r < 0)
			return r;
		if (clock_left(deadline) == 0) {
			region_user_text(queue, seen - 1, who);
			return error_set(error, -EBUSY, "let that process go on, or kill it",
					 "the lock of queue %s is held by %s", region_title(queue), who);
		}
		ms = clock_left(deadline);
		if (ms < 0 || ms > LOCK_LOOK_AGAIN_MS)
			ms = LOCK_LOOK_AGAIN_MS;
		atomic_fetch_add(&head->lock_sleepers, 1);
		syscall(SYS_futex, &head->lock, FUTEX_WAIT, seen,
			&(struct timespec){ms / 1000, ms % 1000 * 1000000}, NULL, 0);
		atomic_fetch_sub(&head->lock_sleepers, 1);
		seen = 0;
	}
	return 0;
}

static int lock_between_threads(struct gpuwm_region *queue, int64_t deadline, struct error *error)
{
	bool got;

	pthread_mutex_lock(&queue->queue_lock);
	while (queue->queue_is_locked && clock_left(deadline) != 0)
		clock_wait(&queue->queue_unlocked, &queue->queue_lock, deadline);
	got = !queue->queue_is_locked;
	queue->queue_is_locked = true;
	pthread_mutex_unlock(&queue->queue_lock);
	return got ? 0
		   : error_set(error, -EBUSY, NULL,
			       "another thread of this process waits for the lock of queue %s",
			       region_title(queue));
}

static void unlock_between_threads(struct gpuwm_region *queue)
{
	pthread_mutex_lock(&queue->queue_lock);
	queue->queue_is_locked = false;
	pthread_cond_signal(&queue->queue_unlocked);
	pthread_mutex_unlock(&queue->queue_lock);
}

int queue_lock(struct gpuwm_region *queue, int64_t deadline, struct error *error)
{
	int r;

	deadline = clock_later(deadline, clock_deadline(LOCK_MIN_MS));
	r = lock_between_threads(queue, deadline, error);
	if (r < 0)
		return r;
	r = lock_between_processes(queue, deadline, error);
	if (r < 0)
		unlock_between_threads(queue);
	return r;
}

void queue_unlock(struct gpuwm_region *queue)
{
	struct control_head *head = queue->control.head;
	uint32_t mine = queue->slot + 1;

	if (atomic_compare_exchange_strong(&head->lock, &mine, 0) && atomic_load(&head->lock_sleepers) > 0)
		syscall(SYS_futex, &head->lock, FUTEX_WAKE, 1, NULL, NULL, 0);
	unlock_between_threads(queue);
}
