#include "error.h"

static _Thread_local struct error last;
static _Thread_local struct gpuwm_error shown;

int client_fail(const struct error *error)
{
	last = *error;
	return error->code;
}

const struct gpuwm_error *gpuwm_error(void)
{
	shown = (struct gpuwm_error){.code = last.code,
				     .name = last.code ? error_name(last.code) : "",
				     .message = last.message,
				     .detail = last.detail};
	return &shown;
}
