#include "fork.h"

#include <errno.h>
#include <pthread.h>
#include <stddef.h>
#include <utlist.h>

static const pthread_mutex_t unlocked = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_mutex_t lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static struct fork_hook *hooks;
static uint64_t generation;

static void in_child(void)
{
	__atomic_add_fetch(&generation, 1, __ATOMIC_RELAXED);
	for (struct fork_hook *hook = hooks; hook; hook = hook->next)
		hook->in_child(hook->object);
	/* The parent's objects are never freed here, so their hooks are forgotten
	 * and a grandchild does not close the same numbers again. */
	hooks = NULL;
	lock = unlocked;
}

static void install(void)
{
	pthread_atfork(fork_lock, fork_unlock, in_child);
}

void fork_lock(void)
{
	pthread_mutex_lock(&lock);
}

void fork_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

uint64_t fork_generation(void)
{
	pthread_once(&installed, install);
	return __atomic_load_n(&generation, __ATOMIC_RELAXED);
}

void fork_watch(struct fork_hook *hook, void (*function)(void *object), void *object)
{
	*hook = (struct fork_hook){.in_child = function, .object = object, .generation = fork_generation()};
	fork_lock();
	DL_PREPEND(hooks, hook);
	fork_unlock();
}

void fork_unwatch(struct fork_hook *hook)
{
	/* Zeroed: never watched. Of the parent: forgotten already. */
	if (!hook->in_child || hook->generation != fork_generation())
		return;
	fork_lock();
	DL_DELETE(hooks, hook);
	hook->in_child = NULL;
	fork_unlock();
}

int fork_check(const struct fork_hook *hook, struct error *error)
{
	if (hook->generation == fork_generation())
		return 0;
	return error_set(error, -ECHILD, "connect again in the child",
			 "this was made before a fork, by the parent process");
}
