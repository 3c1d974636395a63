#include "owner_wish.h"

#include <errno.h>
#include <string.h>

static void wrong(struct fields *f, const char *key, const char *what)
{
	if (!f->error.code)
		error_set(&f->error, -EINVAL, "numbers of users, and \"" OWNER_OPERATOR "\"", "\"%s\" %s", key,
			  what);
}

static void read_one(struct fields *f, const char *key, const msgpack_object *o, struct owner_wish *ret)
{
	char text[sizeof(OWNER_OPERATOR)];

	if (o->type == MSGPACK_OBJECT_STR) {
		fields_text_at(f, o, key, text, sizeof(text));
		ret->operators = true;
		if (strcmp(text, OWNER_OPERATOR) != 0)
			wrong(f, key, "has a text that is not \"" OWNER_OPERATOR "\"");
	} else if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 >= UINT32_MAX) {
		wrong(f, key, "has what is no user's number");
	} else if (ret->count == OWNER_UIDS_MAX) {
		wrong(f, key, "has too many users: 16 are possible");
	} else {
		ret->uids[ret->count++] = (uint32_t)o->via.u64;
	}
}

static void read_owner(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
		       void *ret)
{
	uint32_t count;
	const msgpack_object *list;

	(void)zone;
	if (!value)
		return;
	list = fields_array(f, key, &count);
	if (count == 0)
		wrong(f, key, "names nobody");
	for (uint32_t i = 0; i < count && !f->error.code; i++)
		read_one(f, key, &list[i], ret);
}

static void put_owner(struct message_writer *w, const char *key, const void *member)
{
	const struct owner_wish *wish = member;

	if (wish->count == 0 && !wish->operators)
		return;
	message_begin_array(w, key);
	for (uint32_t i = 0; i < wish->count; i++)
		message_put_u64(w, NULL, wish->uids[i]);
	if (wish->operators)
		message_put_text(w, NULL, OWNER_OPERATOR);
	message_end(w);
}

const struct record_codec owner_codec = {"[u64 or \"" OWNER_OPERATOR "\"]", read_owner, put_owner};
