#include "calls.h"

int call_pin(void)
{
	return gpuwm_pin(client, "m", "p");
}

int call_unpin(void)
{
	return gpuwm_unpin(client, "m", "p");
}

int call_swap(void)
{
	struct gpuwm_swap_options options = GPUWM_OPTIONS(struct gpuwm_swap_options);

	options.model = "m";
	options.to = "v1";
	return gpuwm_swap(client, &options, NULL);
}

int call_load(void)
{
	struct gpuwm_load_options options = GPUWM_OPTIONS(struct gpuwm_load_options);
	uint64_t job;

	options.source = "/m";
	options.name = "m@v2";
	return gpuwm_load(client, &options, &job);
}

int call_retire(void)
{
	return gpuwm_retire(client, "m", -1);
}

int call_cancel(void)
{
	return gpuwm_job_cancel(client, 1);
}

int call_drain(void)
{
	return gpuwm_drain(client);
}
