#include "alike.h"

#include <string.h>

const char *alike_checkpoint(struct gpuwmd *d, const char *name, bool changed)
{
	return changed ? checkpoint_write_flipped(d, name, LARGE(1), 5 * ALIKE_SEGMENT + 100)
		       : checkpoint_write(d, name, LARGE(1));
}

void alike_load(struct gpuwmd *d)
{
	CTL_IS(0, "load", "--wait", alike_checkpoint(d, "v1", false), "m@v1", "--device", d->device,
	       "--segment-bytes", "4M");
	CTL_IS(0, "load", "--wait", alike_checkpoint(d, "v2", true), "m@v2", "--device", d->device,
	       "--segment-bytes", "4M", "--share-with", "m@v1");
	cr_assert_eq(status_of(d, "segments"), ALIKE_SEGMENTS + 1);
}

/* argv: ref. */
static int reader(int argc, char **argv)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;

	(void)argc;
	child_keeps_context();
	CHILD_ASSERT(gpuwm_attach(client, argv[0], NULL, &mapping) == 0);
	CHILD_ASSERT(gpuwm_tensor_count(mapping) == 19);
	for (uint64_t i = 0; gpuwm_tensor_at(mapping, i, &tensor) == 0; i++) {
		bool changed = strcmp(tensor.name, ALIKE_CHANGED) == 0 && strcmp(argv[0], "m@v2") == 0;

		CHILD_ASSERT(tensor_holds(mapping, &tensor, 1) == !changed);
	}
	gpuwm_detach(mapping);
	gpuwm_close(client);
	return 0;
}

void alike_reads(const char *ref)
{
	struct process p = process_start(reader, ref, NULL);

	process_finish(&p);
}

struct alike_figures alike_figures_of(struct gpuwmd *d)
{
	return (struct alike_figures){status_of(d, "bytes"), status_of(d, "segments"),
				      status_of(d, "shared_bytes"), device_used(d), host_used(d)};
}

bool alike_figures_are(struct gpuwmd *d, const struct alike_figures *figures)
{
	const struct alike_figures now = alike_figures_of(d);

	return memcmp(&now, figures, sizeof now) == 0;
}
