#include "job.h"
#include "../../ledger/device.h"
#include "../loaders/loader.h"
#include "../tiers/moves.h"
#include "../../ledger/segment.h"

#include <errno.h>
#include <stdlib.h>

int job_charge_contexts(struct job *job, const struct loader *loader, struct error *error)
{
	int r = 0;

	job->contexts = calloc(job->device_count + 1, sizeof(*job->contexts));
	if (!job->contexts)
		return error_set(error, -ENOMEM, NULL, "gpuwmd is out of memory");
	for (size_t i = 0; r == 0 && i < job->device_count && !job->dry_run; i++) {
		struct device *device = job->devices[i];

		if (loader && loader_has_context(loader, device))
			continue;
		/* Loaders that wait for room have contexts, and a demotion that makes room for them can't wait for their end. Budgets
		 * leave a part of each GPU free by default. */
		if (job_makes_room(job))
			budget_force_context(device, &job->contexts[i]);
		else
			r = budget_charge_context(device, &job->contexts[i], error);
	}
	if (r < 0)
		job_release_contexts(job);
	return r;
}

void job_hand_contexts(struct job *job, struct loader *loader)
{
	for (size_t i = 0; i < job->device_count; i++) {
		struct shared_charge *shared =
			job->contexts[i].bytes ? shared_charge_new(&job->contexts[i]) : NULL;

		if (shared)
			loader_keep(loader, shared);
	}
}
