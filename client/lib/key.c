/* What a caller demands of a version: its key, and its owners. */
#include "key.h"

#include "../../proto/wire/reference.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct key_text {
	char text[sizeof(KEY_PREFIX) + NAME_BYTES_MAX];
};

static struct key_text metadata_name(const char *field)
{
	struct key_text ret;

	snprintf(ret.text, sizeof(ret.text), KEY_PREFIX "%s", field);
	return ret;
}

int key_check(const struct gpuwm_key_field *key, size_t count, struct error *error)
{
	if (count > KEY_FIELDS_MAX)
		return error_set(error, -EINVAL, NULL, "a key of %zu fields; at most %d", count,
				 KEY_FIELDS_MAX);
	if (!key && count > 0)
		return error_set(error, -EINVAL, NULL, "a key of %zu fields, which were not given", count);
	for (size_t i = 0; i < count; i++) {
		const char *wrong = key_field_wrong(key[i].name, key[i].value);

		for (size_t j = 0; !wrong && j < i; j++)
			wrong = strcmp(key[i].name, key[j].name) == 0 ? "is there twice" : NULL;
		if (wrong)
			return error_set(error, -EINVAL, "a field is named as models are",
					 "the key's field \"%.128s\" %s", key[i].name ? key[i].name : "",
					 wrong);
	}
	return 0;
}

struct gpuwm_key_field *key_copy(const struct gpuwm_key_field *key, size_t count)
{
	size_t bytes = 0;
	struct gpuwm_key_field *copy;
	char *text;

	for (size_t i = 0; i < count; i++)
		bytes += strlen(key[i].name) + strlen(key[i].value) + 2;
	copy = malloc((count + 1) * sizeof(*copy) + bytes);
	if (!copy)
		return NULL;
	text = (char *)&copy[count + 1];
	for (size_t i = 0; i < count; i++) {
		copy[i].name = text;
		text = stpcpy(text, key[i].name) + 1;
		copy[i].value = text;
		text = stpcpy(text, key[i].value) + 1;
	}
	return copy;
}

int key_put(struct index_builder *builder, const struct gpuwm_key_field *key, size_t count, struct error *error)
{
	int r = 0;

	for (size_t i = 0; r == 0 && i < count; i++)
		r = index_builder_metadata(builder, metadata_name(key[i].name).text, key[i].value);
	return r < 0 ? error_set(error, r, NULL, "the key does not fit the index: %s", strerror(-r)) : 0;
}

int key_compare(const struct index_view *view, const struct gpuwm_version_info *version,
		const struct gpuwm_key_field *key, size_t count, struct error *error)
{
	static const char remedy[] = "build it for this key under another tag, or attach without the key";

	for (size_t i = 0; i < count; i++) {
		const char *has = index_metadata(view, metadata_name(key[i].name).text);

		if (!has)
			return error_set(error, -EKEYREJECTED, remedy,
					 "the key of %s@%s has no field %s; \"%s\" was asked for",
					 version->model, version->tag, key[i].name, key[i].value);
		if (strcmp(has, key[i].value) != 0)
			return error_set(error, -EKEYREJECTED, remedy,
					 "the key of %s@%s differs in %s: \"%s\" was asked for, it has \"%s\"",
					 version->model, version->tag, key[i].name, key[i].value, has);
	}
	return 0;
}

/* ---- owners ---- */

int owner_check(const struct gpuwm_attach_options *options, struct error *error)
{
	if (options->owner_uid_count > OWNER_UIDS_MAX)
		return error_set(error, -EINVAL, NULL,
				 "%zu users are wished for as owner; at most %d are possible",
				 options->owner_uid_count, OWNER_UIDS_MAX);
	if (!options->owner_uids && options->owner_uid_count > 0)
		return error_set(error, -EINVAL, NULL, "%zu owner_uids, which were not given",
				 options->owner_uid_count);
	return 0;
}

struct owner_wish owner_of(const struct gpuwm_attach_options *options)
{
	struct owner_wish owner = {.count = (uint32_t)options->owner_uid_count,
				   .operators = options->owner_operator};

	if (owner.count > 0)
		memcpy(owner.uids, options->owner_uids, owner.count * sizeof(*owner.uids));
	return owner;
}

void owner_set(const struct owner_wish *owner, struct gpuwm_attach_options *options)
{
	options->owner_uids = owner->uids;
	options->owner_uid_count = owner->count;
	options->owner_operator = owner->operators;
}
