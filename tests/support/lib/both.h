/* A test on host and, where the library can use GPUs, on one: in the suites SUITE_host and SUITE_cuda. */
#ifndef GPUWM_TESTS_LIB_BOTH_H
#define GPUWM_TESTS_LIB_BOTH_H

#include <criterion/criterion.h>

#ifdef GPUWM_CUDA
#define ON_CUDA(suite, name)                                                                                   \
	Test(suite##_cuda, name)                                                                               \
	{                                                                                                      \
		name();                                                                                        \
	}
#else
#define ON_CUDA(suite, name)
#endif

#define TestBoth(suite, name)                                                                                  \
	static void name(void);                                                                                \
	Test(suite##_host, name)                                                                               \
	{                                                                                                      \
		name();                                                                                        \
	}                                                                                                      \
	ON_CUDA(suite, name)                                                                                   \
	static void name(void)

#endif
