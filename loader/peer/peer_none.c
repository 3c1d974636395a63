/* A build without OpenSSL 3: nothing is taken from peers. */
#include "../jobs.h"

#include <errno.h>

static int none(struct error *error)
{
	return error_set(error, -ENOTSUP, "install a gpuwm that was built with OpenSSL 3, or load from files",
			 "this gpuwm-loader has no TLS: it takes nothing from other nodes");
}

int peer_load_run(const struct job *job, struct work *work, struct error *error)
{
	(void)job;
	(void)work;
	return none(error);
}

int peer_load_dry_run(const struct job *job, struct work *work, struct load_plan *ret, struct error *error)
{
	(void)job;
	(void)work;
	(void)ret;
	return none(error);
}
