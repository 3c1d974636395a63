#include "folder.h"

#include "format.h"
#include "json_reader.h"
#include "source.h"
#include "../../base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define RULE_SHARD "a shard is a file of the same folder: its name has no '/' and no \"..\""
#define RULE_MAP "expected {\"weight_map\": {tensor: shard, …}}"
#define MAP_KEY "weight_map"
/* The shortest possible entry. A map can't have more places than its bytes divided by this
 * length. */
#define PLACE_BYTES_MIN (sizeof("\"\":\"\"") - 1)
#define NUMBER_BYTES_MAX 64 /* the digits of a total_size that are read */

struct parser {
	const struct source_file *index;
	struct weight_map *map;
	struct json_reader json;
	struct error *error;
};

/* Returns 0 unless the reader met a fault. */
static int json_state(struct parser *p)
{
	const char *fault = json_reader_fault(&p->json);

	if (!fault)
		return 0;
	return error_set(p->error, -EBADMSG, "UTF-8 JSON, no duplicate keys, nothing after it",
			 "%s: not valid JSON in line %zu (byte %zu): %s", p->index->path,
			 json_reader_line(&p->json), p->json.at, fault);
}

/* Makes the error for a value that is missing or of the wrong kind. */
static int wrong_value(struct parser *p, const char *what)
{
	if (json_reader_peek(&p->json) == JSON_KIND_NONE) {
		json_reader_skip(&p->json);
		return json_state(p);
	}
	return error_set(p->error, -EBADMSG, RULE_MAP, "%s, line %zu: %s", p->index->path,
			 json_reader_line(&p->json), what);
}

static int duplicate_key(struct parser *p, const char *key)
{
	return error_set(p->error, -EBADMSG, "each key is there once", "%s: not valid: duplicate key \"%.*s\"",
			 p->index->path, text_shown(key), key);
}

static int map_no_memory(struct parser *p)
{
	return error_set(p->error, -ENOMEM, NULL, "%s: out of memory", p->index->path);
}

/* ---- the map ------------------------------------------------------------- */

static int check_place(struct parser *p, struct json_text key, struct json_text shard)
{
	const char *tensor = key.bytes, *name = shard.bytes;

	if (json_text_has_zero(key))
		return error_set(p->error, -ENOTSUP, NULL, "%s: a zero byte is in the name of tensor \"%.*s\"",
				 p->index->path, text_shown(tensor), tensor);
	if (*name && !json_text_has_zero(shard) && !strchr(name, '/') && !strstr(name, "..") &&
	    strcmp(name, ".") != 0)
		return 0;
	return error_set(p->error, -ENOTSUP, RULE_SHARD, "%s: tensor \"%.*s\" is mapped to the shard \"%.*s\"",
			 p->index->path, text_shown(tensor), tensor, text_shown(name), name);
}

static int read_place(struct parser *p, struct json_text tensor)
{
	struct json_text shard;
	int r;

	if (json_reader_peek(&p->json) != JSON_KIND_TEXT)
		return error_set(p->error, -EBADMSG, RULE_MAP,
				 "%s: tensor \"%.*s\" is mapped to something that is no text", p->index->path,
				 text_shown(tensor.bytes), tensor.bytes);
	if (!json_reader_text(&p->json, &shard))
		return json_state(p);
	r = check_place(p, tensor, shard);
	if (r == 0)
		p->map->places[p->map->count++] =
			(struct weight_place){.tensor = tensor.bytes, .shard = shard.bytes};
	return r;
}

static int compare_places(const void *a, const void *b)
{
	const struct weight_place *x = a, *y = b;

	return strcmp(x->tensor, y->tensor);
}

static int read_map(struct parser *p)
{
	struct weight_map *map = p->map;
	struct json_text tensor;
	int r = 0;

	if (map->places)
		return duplicate_key(p, MAP_KEY);
	if (json_reader_peek(&p->json) != JSON_KIND_OBJECT)
		return wrong_value(p, MAP_KEY " is no object");
	map->places = calloc(p->json.bytes / PLACE_BYTES_MIN + 1, sizeof(*map->places));
	if (!map->places)
		return map_no_memory(p);
	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &tensor))
		r = read_place(p, tensor);
	if (r == 0)
		r = json_state(p);
	if (r < 0)
		return r;
	qsort(map->places, map->count, sizeof(*map->places), compare_places);
	for (size_t i = 1; i < map->count; i++)
		if (strcmp(map->places[i - 1].tensor, map->places[i].tensor) == 0)
			return duplicate_key(p, map->places[i].tensor);
	return 0;
}

/* ---- the rest ------------------------------------------------------------ */

/* Some writers write it as 13.0 or 1.3e1. */
static int read_total(struct parser *p)
{
	char text[NUMBER_BYTES_MAX + 1];
	struct json_number number;

	if (json_reader_peek(&p->json) != JSON_KIND_NUMBER) {
		json_reader_skip(&p->json);
	} else if (json_reader_number(&p->json, &number) && number.length <= NUMBER_BYTES_MAX) {
		memcpy(text, number.text, number.length);
		text[number.length] = '\0';
		p->map->has_total = true;
		p->map->total = strtod(text, NULL);
	}
	return json_state(p);
}

static int read_metadata(struct parser *p)
{
	struct json_text key;
	int r = 0;

	if (json_reader_peek(&p->json) != JSON_KIND_OBJECT) {
		json_reader_skip(&p->json);
		return json_state(p);
	}
	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &key)) {
		bool is_total = strcmp(key.bytes, "total_size") == 0;

		json_reader_forget(&p->json, key);
		if (is_total)
			r = read_total(p);
		else
			json_reader_skip(&p->json);
	}
	return r < 0 ? r : json_state(p);
}

static int read_document(struct parser *p)
{
	struct json_text key;
	int r = 0;

	if (json_reader_peek(&p->json) != JSON_KIND_OBJECT)
		return wrong_value(p, MAP_KEY " is missing: the index is no object");
	json_reader_object(&p->json);
	while (r == 0 && json_reader_key(&p->json, &key)) {
		if (strcmp(key.bytes, MAP_KEY) == 0) {
			r = read_map(p);
		} else if (strcmp(key.bytes, "metadata") == 0) {
			r = read_metadata(p);
		} else {
			json_reader_skip(&p->json);
			r = json_state(p);
		}
	}
	if (r == 0)
		json_reader_end(&p->json);
	if (r == 0)
		r = json_state(p);
	if (r == 0 && !p->map->places)
		r = error_set(p->error, -EBADMSG, RULE_MAP, "%s: " MAP_KEY " is missing", p->index->path);
	if (r == 0 && p->map->count == 0)
		r = error_set(p->error, -EBADMSG, RULE_MAP, "%s: " MAP_KEY " names no tensor", p->index->path);
	return r;
}

static int map_parse(struct parser *p, const char *text, size_t bytes)
{
	const struct foreign *foreign = foreign_format("", (const uint8_t *)text,
						       bytes < FORMAT_HEAD_BYTES ? bytes : FORMAT_HEAD_BYTES);

	/* If something else was downloaded in the place of the index, the line of the first fault would
	 * help nobody. */
	if (foreign && !foreign_is_json(foreign))
		return error_set(p->error, -ENOTSUP, foreign->remedy, "%s is %s, no index of shards",
				 p->index->path, foreign->what);
	p->map->texts = malloc(bytes + 1);
	if (!p->map->texts)
		return map_no_memory(p);
	json_reader_open(text, bytes, p->map->texts, &p->json);
	return read_document(p);
}

int weight_map_read(const struct source_file *index, struct weight_map *ret, struct error *error)
{
	struct weight_map map = {0};
	struct parser p = {.index = index, .map = &map, .error = error};
	char *text;
	int r = source_file_read(index, SAFETENSORS_HEADER_MAX, &text, error);

	if (r < 0)
		return r;
	r = map_parse(&p, text, (size_t)index->stat.st_size);
	free(text);
	if (r < 0) {
		weight_map_clear(&map);
		return r;
	}
	*ret = map;
	return 0;
}

void weight_map_clear(struct weight_map *map)
{
	free(map->places);
	free(map->texts);
	memset(map, 0, sizeof(*map));
}
