/* Tensors that other frameworks hold: what gpuwmd knows of them. */
#include "harness.h"

#include <gpuwm/dlpack.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

SYSTEM_SUITE(exports);

static struct DLManagedTensor *export_of(struct gpuwm_mapping *mapping, const char *name)
{
	struct DLManagedTensor *export;
	struct gpuwm_tensor tensor;

	OK(gpuwm_tensor_find(mapping, name, &tensor));
	OK(gpuwm_dlpack(mapping, &tensor, &export));
	return export;
}

GPUWMD_TEST(exports, hold_their_version_until_the_last_is_gone)
{
	struct gpuwm_client *client = client_new();
	struct DLManagedTensor *one, *two;
	struct gpuwm_mapping *mapping;
	uint64_t held;

	load_small(d, 1);
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	one = export_of(mapping, "matrix");
	two = export_of(mapping, "layer.001.weight");
	FAILS(EBUSY, gpuwm_detach(mapping));
	gpuwm_drop(mapping);
	gpuwm_close(client);
	held = memory_of(d);
	OK(gpuwm_swap(d->admin,
		      &(struct gpuwm_swap_options){.size = sizeof(struct gpuwm_swap_options), .model = "m"},
		      NULL));
	FAILS(ETIMEDOUT, gpuwm_retire(d->admin, "m@v1", 200));
	one->deleter(one);
	FAILS(ETIMEDOUT, gpuwm_retire(d->admin, "m@v1", 200));
	cr_assert_eq(memory_of(d), held);
	cr_assert_eq(status_of(d, "leases"), 1);
	two->deleter(two);
	cr_assert(EVENTUALLY(SOON_MS, memory_of(d) == 0));
}

GPUWMD_TEST(exports, are_nothing_to_gpuwmd_in_a_forked_child)
{
	struct gpuwm_client *client = client_new();
	struct DLManagedTensor *export;
	struct gpuwm_mapping *mapping;
	int status;
	pid_t pid;

	load_small(d, 1);
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	export = export_of(mapping, "matrix");
	gpuwm_drop(mapping);
	pid = fork();
	if (pid == 0) {
		export->deleter(export);
		_exit(0);
	}
	cr_assert(waitpid(pid, &status, 0) == pid && status == 0, "%#x", status);
	OK(gpuwm_ping(client, NULL));
	cr_assert_eq(status_of(d, "leases"), 1);
	export->deleter(export);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(exports, the_example_in_cxx_reads_every_tensor)
{
	char command[600], line[400];
	unsigned lines = 0;
	FILE *worker;

	load_small(d, 1);
	snprintf(command, sizeof command, "%s/bin/example-dlpack m 2>&1", build_path());
	worker = popen(command, "re");
	while (fgets(line, sizeof line, worker)) {
		cr_assert(strstr(line, " elements on ") != NULL, "%s", line);
		lines++;
	}
	cr_assert_eq(pclose(worker), 0);
	cr_assert_eq(lines, 9); /* six matrices, and "matrix", "scalar", "empty" */
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 0));
	DROP(d, "m@v1");
}
