#include "reference.h"

#include <errno.h>
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

const struct record_codec reference_codec = {"text", read_reference, reference_put};
const struct record_codec name_codec = {"text (model@tag)", read_name, reference_put};
