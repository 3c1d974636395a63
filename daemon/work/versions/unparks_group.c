/* Leases that are awake together or not at all, such as those of one engine's ranks. They wait as one: where the last of them stands. A
 * lease that is of no group is a group of its own. */
#include "unparks_internal.h"

#include "../../net/session.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

/* A user's groups are the user's own, whatever others call theirs. */
static bool are_together(const struct unpark *a, const struct unpark *b)
{
	const struct session *of_a = a->lease->holder, *of_b = b->lease->holder;

	if (a == b)
		return true;
	return !a->failed && !b->failed && a->group[0] && a->group_leases == b->group_leases &&
	       strcmp(a->group, b->group) == 0 && of_a->kind == of_b->kind && of_a->peer.uid == of_b->peer.uid;
}

struct unpark *group_next(const struct work *work, const struct unpark *of, const struct unpark *after)
{
	struct unpark *next = after ? after->next : work->unparks;

	while (next && !are_together(of, next))
		next = next->next;
	return next;
}

bool group_has(const struct unpark *of, const struct lease *lease)
{
	const struct unpark *unpark = unpark_of(lease);

	return unpark && are_together(of, unpark);
}

bool group_is_last(const struct work *work, const struct unpark *unpark)
{
	return !group_next(work, unpark, unpark);
}

bool group_check_complete(const struct work *work, struct unpark *last)
{
	uint64_t count = 0;

	for (const struct unpark *unpark = NULL; (unpark = group_next(work, last, unpark));)
		count++;
	if (!last->group[0] || count >= last->group_leases)
		return true;
	error_set(&last->why, -ENOSPC, "wait until the others ask: they are granted together",
		  "of the group \"%s\" %llu of %llu leases have asked to be awake", last->group,
		  (unsigned long long)count, (unsigned long long)last->group_leases);
	return false;
}

void group_keep(const struct work *work, struct unpark *unpark, uint64_t until_ms)
{
	struct unpark *each = NULL;

	while ((each = group_next(work, unpark, each)))
		until_ms = each->until_ms > until_ms ? each->until_ms : until_ms;
	while ((each = group_next(work, unpark, each)))
		each->until_ms = until_ms;
}

int unparks_join(struct work *work, struct lease *lease, const char *group, uint64_t leases,
		 struct error *error)
{
	struct unpark *unpark = unpark_of(lease);

	if (!unpark)
		unpark = unpark_new(work, lease, error);
	if (!unpark)
		return -ENOMEM;
	if (strcmp(unpark->group, group ? group : "") == 0 && unpark->group_leases == leases)
		return 0;
	unpark_take_back(work, unpark);
	snprintf(unpark->group, sizeof(unpark->group), "%s", group ? group : "");
	unpark->group_leases = leases;
	return 0;
}
