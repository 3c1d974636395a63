/* A test whose body runs between two statements. They are no fixtures of its suite: Criterion counts neither a failed
 * check nor a crash in those. */
#ifndef GPUWM_TESTS_ANY_BETWEEN_H
#define GPUWM_TESTS_ANY_BETWEEN_H

#define TestBetween(suite, name, before, after, ...)                                                           \
	static void suite##_##name(void);                                                                      \
	Test(suite, name, ##__VA_ARGS__)                                                                       \
	{                                                                                                      \
		before;                                                                                        \
		suite##_##name();                                                                              \
		after;                                                                                         \
	}                                                                                                      \
	static void suite##_##name(void)

#endif
