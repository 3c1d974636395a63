/* A sharded repository: model.safetensors.index.json and the files it names. */
#include "source.h"

#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RULE_SHARD "a shard is a file of the same folder: its name has no '/' and no \"..\""

static int index_error(const struct source_file *index, struct error *error, const char *what)
{
	return error_set(error, -EBADMSG, "expected {\"weight_map\": {tensor: shard, …}}", "%s: %s",
			 index->path, what);
}

static int index_parse(const struct source_file *index, json_t **ret_root, struct error *error)
{
	json_error_t json_error;
	json_t *root;
	char *text;
	int r = source_file_read(index, SAFETENSORS_HEADER_MAX, &text, error);

	if (r < 0)
		return r;
	root = json_loadb(text, (size_t)index->stat.st_size, JSON_REJECT_DUPLICATES, &json_error);
	free(text);
	if (!root)
		return error_set(error, -EBADMSG, "UTF-8 JSON, no duplicate keys, nothing after it",
				 "%s: not valid at byte %d", index->path, json_error.position);
	if (!json_is_object(json_object_get(root, "weight_map"))) {
		json_decref(root);
		return index_error(index, error, "weight_map is missing or no object");
	}
	*ret_root = root;
	return 0;
}

static int check_shard_name(const struct source_file *index, const char *tensor, const json_t *value,
			    struct error *error)
{
	const char *name = json_string_value(value);

	if (!name)
		return error_set(error, -EBADMSG, NULL,
				 "%s: tensor \"%.*s\" is mapped to something that is no text", index->path,
				 text_shown(tensor), tensor);
	if (!*name || strchr(name, '/') || strstr(name, "..") || strcmp(name, ".") == 0)
		return error_set(error, -EBADMSG, RULE_SHARD,
				 "%s: tensor \"%.*s\" is mapped to the shard \"%.*s\"", index->path,
				 text_shown(tensor), tensor, text_shown(name), name);
	return 0;
}

static int compare_names(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The shards' names, each once, sorted. They live as long as the map. */
static int shard_names(const struct source_file *index, json_t *map, const char ***ret_names, size_t *ret_count,
		       struct error *error)
{
	json_t *set = json_object(), *value;
	const char **names, *key;
	size_t count = 0;
	int r = 0;

	names = calloc(json_object_size(map) + 1, sizeof(*names));
	if (!set || !names)
		r = error_set(error, -ENOMEM, NULL, "%s: out of memory", index->path);
	else
		json_object_foreach(map, key, value) {
			r = check_shard_name(index, key, value, error);
			if (r < 0)
				break;
			if (json_object_get(set, json_string_value(value)))
				continue;
			json_object_set_new(set, json_string_value(value), json_true());
			names[count++] = json_string_value(value);
		}
	json_decref(set);
	if (r < 0) {
		free(names);
		return r;
	}
	qsort(names, count, sizeof(*names), compare_names);
	*ret_names = names;
	*ret_count = count;
	return 0;
}

static int open_shard(const struct roots *roots, const char *folder, const char *name,
		      const struct source_file *index, struct source *source, struct error *error)
{
	struct source_file *file = &source->files[source->file_count];
	char *path = source_path(folder, name);
	int r;

	if (!path)
		return error_set(error, -ENOMEM, NULL, "%s: out of memory", index->path);
	r = source_file_open(roots, path, file, error);
	if (r == -ENOENT)
		r = error_set(error, -ENOENT, "is the download complete?",
			      "%s names the shard %s, which is missing", index->path, path);
	free(path);
	if (r < 0)
		return r;
	source->file_count++;
	return source_file_parse(file, error);
}

int shards_open(const struct roots *roots, const char *folder, const struct source_file *index,
		struct source *source, struct json_t **ret_root, struct error *error)
{
	const char **names;
	size_t count;
	json_t *root;
	int r = index_parse(index, &root, error);

	if (r < 0)
		return r;
	r = shard_names(index, json_object_get(root, "weight_map"), &names, &count, error);
	if (r < 0) {
		json_decref(root);
		return r;
	}
	source->files = calloc(count + 1, sizeof(*source->files));
	if (!source->files)
		r = error_set(error, -ENOMEM, NULL, "%s: out of memory", index->path);
	for (size_t i = 0; r == 0 && i < count; i++)
		r = open_shard(roots, folder, names[i], index, source, error);
	free(names);
	if (r < 0)
		json_decref(root);
	else
		*ret_root = root;
	return r;
}

static const char *last_component(const char *path)
{
	return strrchr(path, '/') + 1;
}

/* A JSON object serves as the hash table. */
int shards_map(const struct source *source, size_t first_tensor, size_t count, json_t **ret_places,
	       struct error *error)
{
	json_t *places = json_object();

	for (size_t i = first_tensor; i < first_tensor + count; i++) {
		const struct source_tensor *tensor = &source->tensors[i];
		const json_t *first = json_object_get(places, tensor->name);

		if (first) {
			error_set(error, -EBADMSG, "a tensor lies in one shard",
				  "tensor \"%.*s\" is in two shards: %s and %s", text_shown(tensor->name),
				  tensor->name, source->files[json_integer_value(first)].path,
				  source->files[tensor->file].path);
			json_decref(places);
			return -EBADMSG;
		}
		if (json_object_set_new(places, tensor->name, json_integer(tensor->file)) < 0) {
			json_decref(places);
			return error_set(error, -ENOMEM, NULL, "%s: out of memory", source->files[0].path);
		}
	}
	*ret_places = places;
	return 0;
}

static int check_map(const struct source_file *index, const struct source *source, json_t *map, json_t *places,
		     struct error *error)
{
	const char *name;
	json_t *value;

	json_object_foreach(map, name, value) {
		const char *shard = json_string_value(value);
		const json_t *place = json_object_get(places, name);
		const char *found =
			place ? last_component(source->files[json_integer_value(place)].path) : NULL;

		if (found && strcmp(found, shard) == 0)
			continue;
		return error_set(error, -EBADMSG, "the index and its shards must come from one model",
				 "%s: tensor \"%.*s\" is not in its shard %.*s%s%.*s", index->path,
				 text_shown(name), name, text_shown(shard), shard, found ? ", but in " : "",
				 found ? text_shown(found) : 0, found ? found : "");
	}
	return 0;
}

/* Wrong figures that harm nobody. */
static void look_at_totals(const struct source_file *index, struct source *source, const json_t *root)
{
	const json_t *total = json_object_get(json_object_get(root, "metadata"), "total_size");
	size_t mapped = json_object_size(json_object_get(root, "weight_map"));

	if (total && (!json_is_number(total) || json_number_value(total) != (double)source->bytes))
		snprintf(source->warning, sizeof(source->warning),
			 "%s: total_size says %.0f bytes, the shards hold %llu", index->path,
			 json_number_value(total), (unsigned long long)source->bytes);
	else if (mapped != source->tensor_count)
		snprintf(source->warning, sizeof(source->warning),
			 "%s: the map names %zu tensors, the shards hold %zu", index->path, mapped,
			 source->tensor_count);
}

int shards_check(const struct source_file *index, struct source *source, const struct json_t *root,
		 struct error *error)
{
	json_t *places = NULL;
	int r = shards_map(source, 0, source->tensor_count, &places, error);

	if (r == 0) {
		r = check_map(index, source, json_object_get(root, "weight_map"), places, error);
		json_decref(places);
	}
	if (r == 0)
		look_at_totals(index, source, root);
	return r;
}
