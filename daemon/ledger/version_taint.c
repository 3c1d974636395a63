/* Versions whose memory is not what was checked, or is gone with its device. */
#include "registry_internal.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* That it is damaged counts more than how. */
static const struct error untold = {.code = -EBADMSG,
				    .message = "it is damaged, there was no memory to say how"};
static const struct error untold_loss = {.code = -ENODEV,
					 .message = "a GPU was lost, there was no memory to say how"};

void version_taint(struct version *version, const struct error *found)
{
	struct error *copy;

	assert(version->state == VERSION_READY || version->state == VERSION_RETIRING);
	if (version->tainted && (version->tainted->code != -ENODEV || found->code == -ENODEV))
		return;
	version_free_taint(version);
	version->tainted = found->code == -ENODEV ? &untold_loss : &untold;
	copy = malloc(sizeof(*copy));
	if (!copy)
		return;
	*copy = *found;
	version->tainted = copy;
}

void version_free_taint(struct version *version)
{
	if (version->tainted != &untold && version->tainted != &untold_loss)
		free((struct error *)version->tainted);
}

int version_check_sound(const struct version *version, struct error *error)
{
	const char *model = version->model->name;
	char remedy[NAME_BYTES_MAX + 80];

	if (!version->tainted)
		return 0;
	snprintf(remedy, sizeof(remedy),
		 "gpuwmctl swap %s to another version, or load it again under another tag", model);
	return error_set(error, version->tainted->code, remedy, "%s@%s is tainted: %s", model, version->tag,
			 version->tainted->message);
}

bool version_lose(struct version *version, const struct device *device)
{
	bool lost = false;

	for (uint32_t i = 0; i < version->replica_count; i++) {
		struct replica *replica = &version->replicas[i];

		if (replica->lies_on != device || replica->lost)
			continue;
		replica->lost = true;
		lost = true;
	}
	return lost;
}

bool version_is_left(const struct version *version)
{
	uint64_t ranks = 0;

	if (!version->tainted || version->tainted->code != -ENODEV)
		return false;
	for (uint32_t i = 0; i < version->replica_count; i++) {
		if (!version->replicas[i].lost)
			ranks |= UINT64_C(1) << version->replicas[i].rank;
	}
	return version_has_all(version, ranks);
}

int version_check_replica(const struct version *version, uint32_t replica, struct error *error)
{
	if (version_is_left(version) && !version->replicas[replica].lost)
		return 0;
	return version_check_sound(version, error);
}
