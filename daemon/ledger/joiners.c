#include "joiners.h"

#include <errno.h>

static void read_ids(struct fields *f, const char *key, uint32_t most, uint32_t *ret_ids, uint32_t *ret_count)
{
	const msgpack_object *ids;
	uint32_t count;

	*ret_count = 0;
	if (!fields_have(f, key))
		return;
	ids = fields_array(f, key, &count);
	if (!f->error.code && count > most)
		error_set(&f->error, -EINVAL, "name a group that has them all",
			  "\"%s\" names %u; a publish takes at most %u", key, count, most);
	for (uint32_t i = 0; !f->error.code && i < count; i++) {
		/* The greatest number of 32 bits is nobody's: the kernel reads it as "no change". */
		if (ids[i].type != MSGPACK_OBJECT_POSITIVE_INTEGER || ids[i].via.u64 >= UINT32_MAX)
			error_set(&f->error, -EINVAL, NULL, "\"%s\" has an entry that is no user or group id",
				  key);
		else
			ret_ids[i] = (uint32_t)ids[i].via.u64;
	}
	*ret_count = f->error.code ? 0 : count;
}

void joiners_read(struct fields *f, const char *key, struct joiners *ret)
{
	struct fields inner;

	*ret = (struct joiners){0};
	if (!fields_have(f, key))
		return;
	fields_of(&inner, fields_map(f, key));
	read_ids(&inner, "uids", JOIN_UIDS_MAX, ret->uids, &ret->uid_count);
	read_ids(&inner, "gids", JOIN_GIDS_MAX, ret->gids, &ret->gid_count);
	if (!f->error.code)
		f->error = inner.error;
}

static void put_ids(struct message_writer *w, const char *key, const uint32_t *ids, uint32_t count)
{
	message_begin_array(w, key);
	for (uint32_t i = 0; i < count; i++)
		message_put_u64(w, NULL, ids[i]);
	message_end(w);
}

void joiners_put(struct message_writer *w, const char *key, const struct joiners *joiners)
{
	message_begin_map(w, key);
	put_ids(w, "uids", joiners->uids, joiners->uid_count);
	put_ids(w, "gids", joiners->gids, joiners->gid_count);
	message_end(w);
}

bool joiners_have_uid(const struct joiners *joiners, uid_t uid)
{
	uint32_t i = 0;

	while (i < joiners->uid_count && joiners->uids[i] != uid)
		i++;
	return i < joiners->uid_count;
}
