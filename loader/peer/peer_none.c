/* A build without OpenSSL 3: nothing is taken from peers. */
#include "../jobs.h"

#include <errno.h>

static int has_none(struct error *error)
{
	return error_set(error, -ENOTSUP,
			 "install a gpuwm that was built with OpenSSL 3, or take the version from files",
			 "this gpuwm-loader has no TLS: it takes nothing from other nodes");
}

int peer_load_run(const struct job_load_params *params, const struct peer_settings *settings, struct work *work,
		  struct error *error)
{
	(void)params;
	(void)settings;
	(void)work;
	return has_none(error);
}

int peer_again_run(const struct peer_again *again, const struct peer_settings *settings, struct work *work,
		   struct error *error)
{
	(void)again;
	(void)settings;
	(void)work;
	return has_none(error);
}
