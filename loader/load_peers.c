/* The settings with which a job asks other nodes. */
#include "jobs.h"

#include "files/roots.h"
#include "work.h"

#include "../service/peers.h"

#include <errno.h>

/* The lists and settings below are only read: their texts stay the message's. */
static struct peer_list list_of(const char *const *items, uint32_t count)
{
	struct peer_list list = {.count = count};

	for (uint32_t i = 0; i < count; i++)
		list.items[i] = (char *)items[i];
	return list;
}

static struct peer_settings settings_of(const struct job_peers *peers)
{
	return (struct peer_settings){
		.certificate = (char *)peers->certificate,
		.key = (char *)peers->key,
		.authority = (char *)peers->authority,
		.secrets = list_of(peers->secrets.items, peers->secrets.count),
		.names = list_of(peers->names.items, peers->names.count),
		.peers = list_of(peers->peers.items, peers->peers.count),
		.dns = list_of(peers->dns.items, peers->dns.count),
		.listen = (char *)peers->listen,
		.clear = peers->clear,
	};
}

int with_peer_settings(const struct job_peers *given, struct work *work, peer_settings_fn *run, void *data,
		       struct error *error)
{
	const bool own = work->service->own;
	struct peer_settings settings = {0};
	int r = own ? peer_settings_read(work->service->file, &settings, error) : 0;

	if (!own && given)
		settings = settings_of(given);
	if (r == 0)
		r = run(&settings, work, data, error);
	if (own)
		peer_settings_clear(&settings);
	return r;
}
