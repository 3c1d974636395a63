#include "thread.h"

#include <signal.h>
#include <unistd.h>

int thread_begin(pthread_t *ret, size_t stack_bytes, void *(*function)(void *data), void *data)
{
	/* A fault in the caller's code goes the way that the program's faults go. */
	const int faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS};
	sigset_t all, before;
	pthread_attr_t attributes;
	int r;

	sigfillset(&all);
	for (size_t i = 0; i < sizeof(faults) / sizeof(faults[0]); i++)
		sigdelset(&all, faults[i]);
	pthread_attr_init(&attributes);
	pthread_attr_setstacksize(&attributes, stack_bytes + (size_t)sysconf(_SC_THREAD_STACK_MIN));
	pthread_sigmask(SIG_BLOCK, &all, &before);
	r = pthread_create(ret, &attributes, function, data);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	pthread_attr_destroy(&attributes);
	return r;
}
