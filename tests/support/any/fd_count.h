/* How many descriptors this process has open: count before and after. */
#ifndef GPUWM_TESTS_ANY_FD_COUNT_H
#define GPUWM_TESTS_ANY_FD_COUNT_H

int fd_count(void);

#endif
