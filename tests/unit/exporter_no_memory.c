/* What is made of a snapshot when memory runs out: all of it, or nothing. */
#include "exporter/source.h"
#include "exporter/snapshot.h"
#include "tests/support/fail_alloc.h"

#include <criterion/criterion.h>

#define LIST                                                                                                   \
	"{\"versions\":[{\"version\":\"a\",\"model\":\"m\",\"tag\":\"two\",\"state\":\"ready\",\"bytes\":1}]," \
	"\"aliases\":[{\"version\":\"a\",\"model\":\"m\",\"alias\":\"current\"}]}"

static size_t rows(const char *text, const char *table)
{
	json_t *state = json_loads(text, 0, NULL);
	size_t count = json_array_size(json_object_get(state, table));

	cr_assert_not_null(state, "%s", text);
	json_decref(state);
	return count;
}

Test(exporter_no_memory, a_state_has_all_rows_or_is_none)
{
	struct tally tally = {0};
	struct snapshot *snapshot = snapshot_new(&tally);
	unsigned whole = 0;
	size_t bytes;
	char *text;

	snapshot->up = true;
	snapshot->answers[ASK_LIST] = json_loads(LIST, 0, NULL);
	snapshot->answers[ASK_CLIENTS] = json_loads("{\"clients\":[{\"leases\":[1,2]}]}", 0, NULL);
	for (unsigned n = 1; fail_alloc_arm(n), text = state_make(snapshot, &bytes), fail_alloc_disarm(); n++) {
		if (text)
			cr_expect(rows(text, "versions") == 1 && rows(text, "aliases") == 1 &&
					  rows(text, "clients") == 1,
				  "%u: %s", n, text);
		free(text);
	}
	whole += rows(text, "versions") + rows(text, "aliases") + rows(text, "clients");
	cr_expect_eq(whole, 3);
	free(text);
	snapshot_unref(snapshot);
}
