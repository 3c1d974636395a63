/* Calls that change something, and may not be repeated when their answer is lost. */
#ifndef GPUWM_TESTS_LIB_CALLS_H
#define GPUWM_TESTS_LIB_CALLS_H

#include "lib_restart.h"

static inline int call_pin(void)
{
	return gpuwm_pin(client, "m", "p");
}

static inline int call_unpin(void)
{
	return gpuwm_unpin(client, "m", "p");
}

static inline int call_swap(void)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	options.to = "v1";
	return gpuwm_swap(client, &options, NULL);
}

static inline int call_load(void)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;

	options.source = "/m";
	options.name = "m@v2";
	return gpuwm_load(client, &options, &job);
}

static inline int call_retire(void)
{
	return gpuwm_retire(client, "m", -1);
}

static inline int call_cancel(void)
{
	return gpuwm_job_cancel(client, 1);
}

static inline int call_drain(void)
{
	return gpuwm_drain(client);
}

#endif
