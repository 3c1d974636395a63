/* One expression in a child process. */
#ifndef GPUWM_TESTS_CHILD_H
#define GPUWM_TESTS_CHILD_H

#include <sys/wait.h>
#include <unistd.h>

/* Forks a child that evaluates the expression and exits with its value. Returns the child's wait status. */
#define IN_CHILD(exit_code)                                                                                    \
	({                                                                                                     \
		int child_status_ = -1;                                                                        \
		pid_t child_pid_ = fork();                                                                     \
                                                                                                               \
		if (child_pid_ == 0)                                                                           \
			_exit(exit_code);                                                                      \
		waitpid(child_pid_, &child_status_, 0);                                                        \
		child_status_;                                                                                 \
	})

#endif
