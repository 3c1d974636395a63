#include "groups.h"

#include "../../../base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define FOUND_BYTES 2048

static const char *const names[VERDICTS] = {"ok", "warning", "failed", "not applicable"};

const char *verdict_name(enum verdict verdict)
{
	return names[verdict];
}

enum verdict verdict_of(const char *name)
{
	enum verdict verdict = 0;

	while (verdict < VERDICTS && strcmp(names[verdict], name) != 0)
		verdict++;
	return verdict;
}

static void text_add(json_t *object, const char *key, const char *text)
{
	char line[FOUND_BYTES];

	if (!text || !*text)
		return;
	snprintf(line, sizeof(line), "%s", text);
	utf8_make_line(line);
	json_object_set_new(object, key, json_string(line));
}

void finding(struct findings *findings, enum verdict verdict, const char *check, const char *subject,
	     const char *remedy, const char *format, ...)
{
	char found[FOUND_BYTES];
	json_t *object = json_object();
	va_list list;

	va_start(list, format);
	vsnprintf(found, sizeof(found), format, list);
	va_end(list);
	text_add(object, "check", check);
	text_add(object, "subject", subject);
	text_add(object, "verdict", verdict_name(verdict));
	text_add(object, "found", found);
	text_add(object, "remedy", remedy);
	json_array_append_new(findings->list, object);
}
