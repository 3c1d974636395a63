/* Waits for what another thread or process does. */
#ifndef GPUWM_TESTS_ANY_UNTIL_H
#define GPUWM_TESTS_ANY_UNTIL_H

#include <criterion/criterion.h>
#include <stdbool.h>
#include <stdint.h>

/* Looks every millisecond whether the condition holds. The test fails if it does not hold within ten seconds. */
#define UNTIL(condition)                                                                                       \
	do {                                                                                                   \
		const int64_t until_ = until_deadline();                                                       \
		bool holds_;                                                                                   \
		while (!(holds_ = (condition)) && until_pause(until_))                                         \
			;                                                                                      \
		cr_assert(holds_, "%s", #condition);                                                           \
	} while (0)

/* For UNTIL: when it gives up, in milliseconds. */
int64_t until_deadline(void);
/* For UNTIL: sleeps for a millisecond. Returns false if the deadline has passed. */
bool until_pause(int64_t deadline);

#endif
