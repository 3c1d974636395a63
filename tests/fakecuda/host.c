/* Functions of the program that a stream calls when it has got there. As with the real driver, a thread of the driver calls them, one
 * after the other, and what is queued behind waits until the function has returned. The thread holds no lock meanwhile. */
#include "driver.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdlib.h>

/* A call that a stream has got to. */
struct call {
	CUhostFn fn;
	void *user_data;
	enum { CALL_QUEUED, CALL_BEGUN, CALL_OVER } state;
	struct call *next;
};

static struct call *first, **end = &first; /* those that the thread is to make */
static sem_t calls;
static bool runs;

static void *make_calls(void *unused)
{
	for (;;) {
		struct call *call;

		while (sem_wait(&calls) != 0)
			;
		driver_lock();
		call = first;
		first = call->next;
		if (!first)
			end = &first;
		driver_unlock();
		call->fn(call->user_data);
		driver_lock();
		call->state = CALL_OVER;
		words_go_on();
		driver_unlock();
	}
	return unused;
}

static void thread_start(void)
{
	sigset_t all, before;
	pthread_t thread;

	sem_init(&calls, 0, 0);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	if (pthread_create(&thread, NULL, make_calls, NULL) != 0)
		abort();
	pthread_detach(thread);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	runs = true;
}

/* The stream has got to the call, and looks again until it is over. */
static CUresult call_host(const struct stream_work *data)
{
	struct call *call = data->host;

	if (call->state == CALL_BEGUN)
		return CUDA_ERROR_NOT_READY;
	if (call->state == CALL_OVER || context_is_broken()) {
		const bool over = call->state == CALL_OVER;

		free(call);
		return over ? CUDA_SUCCESS : CUDA_ERROR_ILLEGAL_ADDRESS;
	}
	call->state = CALL_BEGUN;
	*end = call;
	end = &call->next;
	sem_post(&calls);
	return CUDA_ERROR_NOT_READY;
}

DRIVER_CALL(cuLaunchHostFunc, NEEDS_CONTEXT, (CUstream stream, CUhostFn fn, void *user_data),
	    (stream, fn, user_data))
{
	struct call *call = fn ? malloc(sizeof(*call)) : NULL;
	CUresult result;

	if (!fn)
		return CUDA_ERROR_INVALID_VALUE;
	if (!call)
		abort();
	if (!runs)
		thread_start();
	*call = (struct call){.fn = fn, .user_data = user_data};
	result = stream_later_alone(stream, call_host, &(struct stream_work){.host = call});
	if (result == CUDA_SUCCESS)
		words_go_on();
	return result;
}
