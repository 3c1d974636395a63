#include "reference.h"

#include "../../base/utf8.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

int reference_parse(const char *text, const char *key, struct ref *ret, struct error *error)
{
	const char *why;

	if (ref_parse(text, ret, &why) == 0)
		return 0;
	return error_set(error, -EINVAL, "model, model@tag, model@alias or a version id", "\"%s\": the %s %s",
			 text, key, why);
}

static void read_reference(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
			   void *ret)
{
	char text[REF_BYTES_MAX + 1];

	(void)zone;
	fields_text_at(f, value, key, text, sizeof text);
	if (!f->error.code)
		reference_parse(text, key, &((struct reference *)ret)->ref, &f->error);
}

static void read_name(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
		      void *ret)
{
	struct ref *name = &((struct reference *)ret)->ref;
	const char *why = "is not model@tag";
	char text[REF_BYTES_MAX + 1];

	(void)zone;
	if (!value)
		return;
	fields_text_at(f, value, key, text, sizeof text);
	if (f->error.code)
		return;
	if (!strchr(text, '@') || ref_parse(text, name, &why) < 0 || name->has_id)
		error_set(&f->error, -EINVAL, "a new version is named model@tag", "\"%s\": the %s %s", text,
			  key, why);
}

static void reference_put(struct message_writer *w, const char *key, const void *member)
{
	message_put_text(w, key, ((const struct reference *)member)->text);
}

static const char **reference_text(void *member)
{
	return &((struct reference *)member)->text;
}

const struct record_codec reference_codec = {"text", read_reference, reference_put, reference_text};
const struct record_codec name_codec = {"text (model@tag)", read_name, reference_put, reference_text};

/* ---- the parameter `owner` ---- */

static void owner_wrong(struct fields *f, const char *key, const char *what)
{
	if (!f->error.code)
		error_set(&f->error, -EINVAL, "numbers of users, and \"" OWNER_OPERATOR "\"", "\"%s\" %s", key,
			  what);
}

static void read_owner_one(struct fields *f, const char *key, const msgpack_object *o, struct owner_wish *ret)
{
	char text[sizeof(OWNER_OPERATOR)];

	if (o->type == MSGPACK_OBJECT_STR) {
		fields_text_at(f, o, key, text, sizeof(text));
		ret->operators = true;
		if (strcmp(text, OWNER_OPERATOR) != 0)
			owner_wrong(f, key, "has a text that is not \"" OWNER_OPERATOR "\"");
	} else if (o->type != MSGPACK_OBJECT_POSITIVE_INTEGER || o->via.u64 >= UINT32_MAX) {
		owner_wrong(f, key, "has what is no user's number");
	} else if (ret->count == OWNER_UIDS_MAX) {
		owner_wrong(f, key, "has too many users: 16 are possible");
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
		owner_wrong(f, key, "names nobody");
	for (uint32_t i = 0; i < count && !f->error.code; i++)
		read_owner_one(f, key, &list[i], ret);
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

const struct record_codec owner_codec = {
	.form = "[u64 or \"" OWNER_OPERATOR "\"]", .read = read_owner, .put = put_owner};

/* ---- a version's key ---- */

const char *key_field_wrong(const char *name, const char *value)
{
	const char *wrong = name ? name_wrong(name) : "has no name";

	if (wrong)
		return wrong;
	if (!value)
		return "has no value";
	if (strlen(value) > KEY_VALUE_BYTES_MAX)
		return "has a value of more than 255 bytes";
	return utf8_valid(value) ? NULL : "has a value that is not UTF-8";
}

static const struct record_field key_pair_rows[] = {
	FIELD_TEXT(struct key_pair, name, NAME_BYTES_MAX),
	FIELD_TEXT(struct key_pair, value, KEY_VALUE_BYTES_MAX),
};
const struct record key_pair_record = {RECORD(struct key_pair, key_pair_rows)};

int key_pairs_check(const struct key_pair *pairs, uint32_t count, struct error *error)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *wrong = key_field_wrong(pairs[i].name, pairs[i].value);

		for (uint32_t j = 0; !wrong && j < i; j++)
			wrong = strcmp(pairs[i].name, pairs[j].name) == 0 ? "is there twice" : NULL;
		if (wrong)
			return error_set(error, -EINVAL, "a field is named as models are",
					 "the key's field \"%s\" %s", pairs[i].name, wrong);
	}
	return 0;
}

struct key_field *key_fields_new(const struct key_pair *pairs, uint32_t count)
{
	struct key_field *fields = calloc((size_t)count + 1, sizeof(*fields));

	for (uint32_t i = 0; fields && i < count; i++) {
		strcpy(fields[i].name, pairs[i].name);
		strcpy(fields[i].value, pairs[i].value);
	}
	return fields;
}
