/* Versions without a name: they live as long as anybody has a lease of them. */
#include "kept.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(nameless);

static struct gpuwm_publish *begin(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_publish *publish;

	OK(publish_begin(client, d->device, NULL, SMALL(1), &publish));
	OK(publish_fill(publish, SMALL(1)));
	return publish;
}

/* What an anonymous publisher has. */
static struct gpuwm_mapping *share(struct gpuwmd *d, struct gpuwm_client *client)
{
	struct gpuwm_mapping *mapping;

	OK(gpuwm_publish_commit_attached(begin(d, client), &mapping));
	return mapping;
}

static const char *id_of(const struct gpuwm_mapping *mapping)
{
	return gpuwm_mapping_version(mapping)->id;
}

static size_t listed(struct gpuwmd *d, const char *model)
{
	json_t *list = query(d->admin, "list", model);
	size_t count = json_array_size(json_object_get(list, "versions"));

	json_decref(list);
	return count;
}

GPUWMD_TEST(nameless, its_makers_lease_keeps_it_and_nobody_else_need_know)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	const uint64_t seq = status_of(d, "seq");
	char model[32];

	snprintf(model, sizeof(model), "~%u", (unsigned)getuid());
	cr_expect_str_eq(gpuwm_mapping_version(mapping)->model, model);
	cr_expect_str_eq(gpuwm_mapping_version(mapping)->tag, id_of(mapping));
	cr_expect(mapping_holds(mapping, 1));
	cr_expect_eq(status_of(d, "nameless"), 1);
	cr_expect_eq(status_of(d, "versions"), 0);
	cr_expect_eq(status_of(d, "aliases"), 0);
	cr_expect_eq(status_of(d, "leases"), 1);
	cr_expect_eq(listed(d, NULL), 0);
	cr_expect_eq(listed(d, model), 1);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && memory_of(d) == 0));
	cr_expect_eq(status_of(d, "seq"), seq, "no event tells of it");
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, the_last_lease_of_any_process_frees_it)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	struct process worker = worker_start(d, id_of(mapping), 1);

	gpuwm_close(client);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "leases") == 1));
	cr_expect_eq(status_of(d, "nameless"), 1);
	process_kill(&worker, SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0 && memory_of(d) == 0));
}

GPUWMD_TEST(nameless, who_comes_too_late_hears_that_it_is_gone)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client), *late;
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	OK(gpuwm_detach(mapping));
	FAILS(gpuwm_attach(client, id, NULL, &late), ENOENT);
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, a_commit_without_a_mapping_is_refused)
{
	struct gpuwm_client *client = client_new();

	FAILS(gpuwm_publish_commit(begin(d, client), NULL), EINVAL);
	cr_expect(strstr(gpuwm_error()->detail, "gpuwm_publish_commit_attached"));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST(nameless, an_operator_may_pin_and_retire_it)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client), *late;
	char id[33];

	snprintf(id, sizeof(id), "%s", id_of(mapping));
	OK(gpuwm_pin(d->admin, id, "look"));
	OK(gpuwm_detach(mapping));
	cr_expect_eq(status_of(d, "nameless"), 1);
	OK(gpuwm_retire(d->admin, id, 0));
	FAILS(gpuwm_attach(client, id, NULL, &late), ENOENT);
	OK(gpuwm_unpin(d->admin, id, "look"));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
	gpuwm_close(client);
}

/* ---- restarts ---- */

static struct gpuwmd *long_kept(void)
{
	return gpuwmd_start_kept(KEPT_LONG);
}

GPUWMD_TEST_BY(nameless, a_restart_keeps_what_somebody_has, long_kept(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);

	kept_kill(d, SIGKILL);
	cr_expect_eq(status_of(d, "nameless"), 1);
	worker_reads(d, id_of(mapping), 1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "grace_ms") == 0));
	cr_expect_eq(status_of(d, "nameless"), 1);
	cr_expect_eq(gpuwm_mapping_check(mapping), 0);
	OK(gpuwm_detach(mapping));
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
	gpuwm_close(client);
}

GPUWMD_TEST_BY(nameless, a_restart_frees_what_nobody_takes_again, long_kept(), gpuwmd_stop_empty)
{
	struct gpuwm_client *client = client_new();
	struct gpuwm_mapping *mapping = share(d, client);
	struct process worker = worker_start(d, id_of(mapping), 1);

	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	cr_assert_eq(kill(worker.pid, SIGSTOP), 0);
	kept_kill(d, SIGKILL);
	process_kill(&worker, SIGKILL);
	cr_expect_eq(status_of(d, "nameless"), 1);
	cr_assert(EVENTUALLY(SOON_MS, status_of(d, "nameless") == 0));
}
