#include "table.h"

#include "answer.h"

#include <inttypes.h>
#include <stdio.h>

const char *cell_text(const json_t *row, const char *key, char text[CELL_TEXT])
{
	(void)text;
	return answer_text(row, key);
}

const char *cell_number(const json_t *row, const char *key, char text[CELL_TEXT])
{
	snprintf(text, CELL_TEXT, "%" PRIu64, answer_number(row, key));
	return text;
}

const char *cell_lease(const json_t *row, const char *key, char text[CELL_TEXT])
{
	const uint64_t lease = answer_number(row, key), start = lease >> 32;

	if (start == 0)
		return cell_number(row, key, text);
	snprintf(text, CELL_TEXT, "%" PRIu64 ".%" PRIu32, start, (uint32_t)lease);
	return text;
}

const char *cell_size(const json_t *row, const char *key, char text[CELL_TEXT])
{
	return size_text(answer_number(row, key), text);
}

const char *cell_size_known(const json_t *row, const char *key, char text[CELL_TEXT])
{
	return json_object_get(row, key) ? cell_size(row, key, text) : "";
}

const char *cell_age(const json_t *row, const char *key, char text[CELL_TEXT])
{
	return age_text(answer_number(row, key), text);
}

const char *cell_time(const json_t *row, const char *key, char text[CELL_TEXT])
{
	return time_text(answer_number(row, key), text);
}

const char *cell_count(const json_t *row, const char *key, char text[CELL_TEXT])
{
	snprintf(text, CELL_TEXT, "%zu", json_array_size(json_object_get(row, key)));
	return text;
}

const char *cell_join(const json_t *row, const char *key, char text[CELL_TEXT])
{
	answer_join(json_object_get(row, key), text, CELL_TEXT);
	return text;
}

const char *cell_device(const json_t *row, const char *key, char text[CELL_TEXT])
{
	device_short(answer_text(row, key), text);
	return text;
}

const char *cell_devices(const json_t *row, const char *key, char text[CELL_TEXT])
{
	device_short_join(json_object_get(row, key), text, CELL_TEXT);
	return text;
}

const char *cell_name(const json_t *row, const char *key, char text[CELL_TEXT])
{
	(void)key;
	snprintf(text, CELL_TEXT, "%s@%s", answer_text(row, "model"), answer_text(row, "tag"));
	return text;
}

const char *cell_ref(const json_t *row, const char *key, char text[CELL_TEXT])
{
	return answer_has_tag(row) ? cell_name(row, key, text) : answer_text(row, "version");
}
