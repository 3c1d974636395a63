#include "owner_wish.h"
#include "../../proto/methods.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static void wrong(struct fields *fields, const char *key, const char *what)
{
	if (!fields->error.code)
		error_set(&fields->error, -EINVAL, "numbers of users, and \"" OWNER_OPERATOR "\"", "\"%s\" %s",
			  key, what);
}

static void read_one(struct fields *fields, const char *key, const msgpack_object *o, struct owner_wish *ret)
{
	char text[sizeof(OWNER_OPERATOR)];

	if (o->type == MSGPACK_OBJECT_STR) {
		fields_text_at(fields, o, key, text, sizeof(text));
		ret->operators = true;
		if (strcmp(text, OWNER_OPERATOR) != 0)
			wrong(fields, key, "has a text that is not \"" OWNER_OPERATOR "\"");
	} else if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 >= UINT32_MAX) {
		wrong(fields, key, "has what is no user's number");
	} else if (ret->count == OWNER_UIDS_MAX) {
		wrong(fields, key, "has too many users: 16 are possible");
	} else {
		ret->uids[ret->count++] = (uid_t)o->via.u64;
	}
}

void owner_wish_read(struct fields *fields, const char *key, struct owner_wish *ret)
{
	const msgpack_object *list;
	uint32_t count;

	*ret = (struct owner_wish){0};
	if (!fields_have(fields, key))
		return;
	list = fields_array(fields, key, &count);
	if (count == 0)
		wrong(fields, key, "names nobody");
	for (uint32_t i = 0; i < count && !fields->error.code; i++)
		read_one(fields, key, &list[i], ret);
}

static bool is_fulfilled(const struct owner_wish *wish, const struct version *version)
{
	for (uint32_t i = 0; i < wish->count; i++) {
		if (wish->uids[i] == version->owner)
			return true;
	}
	return wish->operators ? version->by_operator : wish->count == 0;
}

int owner_wish_check(const struct owner_wish *wish, const struct version *version, struct error *error)
{
	char asked[16 * OWNER_UIDS_MAX];
	int used = snprintf(asked, sizeof(asked), "%s", wish->operators ? " an operator" : "");

	if (is_fulfilled(wish, version))
		return 0;
	for (uint32_t i = 0; i < wish->count; i++)
		used += snprintf(asked + used, sizeof(asked) - (size_t)used, "%s uid %u", used ? "," : "",
				 (unsigned)wish->uids[i]);
	return error_set(error, -EACCES, "list tells who made each version",
			 "%s@%s was made by %suid %u; the request accepts only versions of%s",
			 model_name(version->model), version->tag, version->by_operator ? "an operator, " : "",
			 (unsigned)version->owner, asked);
}
