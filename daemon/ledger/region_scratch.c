/* Scratch memory: one user holds it at a time. gpuwmd knows who, whatever the control memory says. */
#include "region.h"

#include "../../proto/wire/messages_region.h"

struct region_user *region_scratch_holder(const struct region *region)
{
	return region->scratch.is_held ? region->users[region->scratch.holder] : NULL;
}

void region_scratch_give(struct region_user *user)
{
	struct region_scratch *scratch = &user->region->scratch;

	scratch->is_held = true;
	scratch->holder = user->slot;
}

bool region_scratch_take_back(struct region_user *user, bool untouched)
{
	struct region_scratch *scratch = &user->region->scratch;

	if (region_scratch_holder(user->region) != user)
		return false;
	scratch->is_held = false;
	if (!untouched)
		scratch->written_by = user->use;
	return true;
}

bool region_scratch_is_foreign(const struct region_user *user)
{
	static const struct version_id nobody;
	const struct version_id *by = &user->region->scratch.written_by;

	return !version_id_equal(by, &nobody) && !version_id_equal(by, &user->use);
}

static void scratch_count(const struct region *region, struct region_figures *ret)
{
	ret->bytes_used = region_scratch_holder(region) ? region->is.bytes : 0;
}

static void scratch_look(const struct region *region, struct region_figures *ret)
{
	const struct region_user *holder = region_scratch_holder(region);

	scratch_count(region, ret);
	if (holder)
		ret->holds[holder->slot] = 1;
}

const struct region_kind region_kind_scratch = {
	.name = REGION_KIND_SCRATCH,
	.item = "chunk",
	.has_holder = true,
	.count = scratch_count,
	.look = scratch_look,
};
