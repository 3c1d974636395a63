#include "cut.h"

#include "../files/json_reader.h"

#include <stdlib.h>
#include <string.h>

#define CONFIG "config.json"

/* Where models of text, pictures and sound have what belongs to their language model. */
static bool is_language_model(const char *key)
{
	static const char *const names[] = {"text_config", "llm_config", "language_config", "thinker_config"};

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		if (strcmp(key, names[i]) == 0)
			return true;
	}
	return false;
}

/* Calls `take` with config.json, at its beginning. Returns false if there is none, or if it is no JSON. */
static bool with_config(const struct source *source, void (*take)(struct json_reader *json, void *found),
			void *found)
{
	const struct source_extra *config = NULL;
	struct json_reader json;
	char *texts;
	bool well;

	for (size_t i = 0; i < source->extra_count && !config; i++) {
		if (strcmp(source->extras[i].name, CONFIG) == 0)
			config = &source->extras[i];
	}
	texts = config ? malloc(config->bytes + 1) : NULL;
	if (!texts)
		return false;
	json_reader_open(config->data, config->bytes, texts, &json);
	take(&json, found);
	json_reader_end(&json);
	well = !json_reader_fault(&json);
	free(texts);
	return well;
}

struct found_number {
	const char *key;
	bool top, below; /* it was found at the top, or in the language model's part */
	uint64_t number;
	bool is_below; /* the reader is in that part */
};

static void find_number(struct json_reader *json, void *found)
{
	struct found_number *wanted = found;
	struct json_number number;
	struct json_text key;

	if (!json_reader_object(json))
		return;
	while (json_reader_key(json, &key)) {
		if (strcmp(key.bytes, wanted->key) == 0 && json_reader_peek(json) == JSON_KIND_NUMBER) {
			if (json_reader_number(json, &number) && number.is_count &&
			    !(wanted->is_below && wanted->top)) {
				wanted->number = number.count;
				*(wanted->is_below ? &wanted->below : &wanted->top) = true;
			}
		} else if (is_language_model(key.bytes) && json_reader_peek(json) == JSON_KIND_OBJECT) {
			bool was_below = wanted->is_below;

			wanted->is_below = true;
			find_number(json, wanted);
			wanted->is_below = was_below;
		} else {
			json_reader_skip(json);
		}
	}
}

bool cut_config_number(const struct source *source, const char *key, uint64_t *ret)
{
	struct found_number wanted = {.key = key};

	if (!with_config(source, find_number, &wanted) || !(wanted.top || wanted.below))
		return false;
	*ret = wanted.number;
	return true;
}

struct found_block {
	uint64_t sizes[2];
	size_t count;
};

static void find_sizes(struct json_reader *json, struct found_block *block)
{
	struct json_number number;

	block->count = 0;
	json_reader_array(json);
	while (json_reader_item(json)) {
		if (!json_reader_number(json, &number))
			return;
		if (block->count < 2)
			block->sizes[block->count] = number.is_count ? number.count : 0;
		block->count++;
	}
}

static void find_block(struct json_reader *json, void *found)
{
	struct found_block *block = found;
	struct json_text key;

	if (!json_reader_object(json))
		return;
	while (json_reader_key(json, &key)) {
		enum json_kind kind = json_reader_peek(json);

		if (kind == JSON_KIND_ARRAY && strcmp(key.bytes, "weight_block_size") == 0)
			find_sizes(json, block);
		else if (kind == JSON_KIND_OBJECT &&
			 (strcmp(key.bytes, "quantization_config") == 0 || is_language_model(key.bytes)))
			find_block(json, block);
		else
			json_reader_skip(json);
	}
}

bool cut_config_block(const struct source *source, uint64_t ret[2])
{
	struct found_block block = {.count = 0};

	if (!with_config(source, find_block, &block) || block.count != 2)
		return false;
	memcpy(ret, block.sizes, sizeof(block.sizes));
	return true;
}
