/* Words that a stream writes, and words that it waits for. Another process may be at the other end, which makes no call here: so a
 * thread does what can be done of the streams that have such work, up to the last of it. What is queued behind stays as late as it may
 * be. */
#include "driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

#define WORD_BYTES 8

static sem_t work; /* there may be some */
static bool runs;

static void *go_on(void *unused)
{
	bool more;

	for (;;) {
		while (sem_wait(&work) != 0)
			;
		do {
			nanosleep(&(struct timespec){.tv_nsec = NAP_NS}, NULL);
			driver_lock();
			more = streams_go_on();
			driver_unlock();
		} while (more);
	}
	return unused;
}

static void thread_start(void)
{
	sigset_t all, before;
	pthread_t thread;

	sem_init(&work, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, go_on, NULL) != 0)
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	runs = true;
}

void words_go_on(void)
{
	if (!runs)
		thread_start();
	sem_post(&work);
}

/* The value of a word at this moment: in registered host memory, or in the device's own. */
static CUresult word_get(const struct stream_work *data, CUdeviceptr address, uint64_t *ret)
{
	struct stream_work from = *data;

	if (host_pinned((void *)address, WORD_BYTES)) {
		*ret = __atomic_load_n((uint64_t *)address, __ATOMIC_ACQUIRE);
		return CUDA_SUCCESS;
	}
	from.from = address;
	from.host = ret;
	return copy_out(&from);
}

static CUresult write_word(const struct stream_work *data)
{
	struct stream_work to = *data;

	if (host_pinned((void *)data->to, WORD_BYTES)) {
		__atomic_store_n((uint64_t *)data->to, data->word, __ATOMIC_RELEASE);
		return CUDA_SUCCESS;
	}
	to.host = &to.word;
	return copy_in(&to);
}

static CUresult wait_word(const struct stream_work *data)
{
	uint64_t now = 0;
	CUresult result = word_get(data, data->from, &now);

	if (result != CUDA_SUCCESS)
		return result;
	return (int64_t)(now - data->word) >= 0 ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

/* A bad address is told by the call that queues the work. */
static CUresult word_check(CUdeviceptr address, int ordinal, CUmemAccess_flags right)
{
	const struct mapping *mapping;

	if (!address || address % WORD_BYTES)
		return CUDA_ERROR_INVALID_VALUE;
	if (host_pinned((void *)address, WORD_BYTES))
		return CUDA_SUCCESS;
	mapping = mapping_find(address);
	return mapping && (mapping->access[ordinal] & right) == right ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult put(CUstream stream, stream_work_fn *fn, struct stream_work *data, CUmemAccess_flags right)
{
	CUresult result;

	if (!machine()->words)
		return CUDA_ERROR_NOT_SUPPORTED;
	context_check(&data->ordinal);
	result = word_check(data->to ? data->to : data->from, data->ordinal, right);
	if (result == CUDA_SUCCESS)
		result = stream_later_alone(stream, fn, data);
	if (result == CUDA_SUCCESS)
		words_go_on();
	return result;
}

DRIVER_CALL(cuStreamWriteValue64_v2, NEEDS_CONTEXT,
	    (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
	    (stream, address, value, flags))
{
	struct stream_work data = {.to = address, .word = value, .bytes = WORD_BYTES};

	if (flags > CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER)
		return CUDA_ERROR_INVALID_VALUE;
	return put(stream, write_word, &data, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

DRIVER_CALL(cuStreamWaitValue64_v2, NEEDS_CONTEXT,
	    (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags),
	    (stream, address, value, flags))
{
	struct stream_work data = {.from = address, .word = value, .bytes = WORD_BYTES};

	if (flags != CU_STREAM_WAIT_VALUE_GEQ)
		return CUDA_ERROR_NOT_SUPPORTED;
	return put(stream, wait_word, &data, CU_MEM_ACCESS_FLAGS_PROT_READ);
}
