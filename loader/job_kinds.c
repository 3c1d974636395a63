#include "job.h"

#include "../proto/wire/messages.h"

#include <errno.h>
#include <string.h>

static const struct job_kind *const kinds[] = {&kind_load, &kind_check, &kind_verify,
					       &kind_move, &kind_hold,  &kind_region};

int job_parse(const struct message *message, struct packet *packet, struct job **ret, struct error *error)
{
	struct job_head head;
	int r = record_read(&job_head_record, message, &head, error);

	for (size_t i = 0; r == 0 && i < sizeof(kinds) / sizeof(*kinds); i++) {
		if (strcmp(kinds[i]->name, head.kind) == 0)
			return job_make(kinds[i], message, packet, ret, error);
	}
	return r < 0 ? r : error_set(error, -EINVAL, NULL, "there is no job of the kind \"%s\"", head.kind);
}
