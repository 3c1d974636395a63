#include "notify.h"
#include "../service/manager.h"

#include <errno.h>
#include <string.h>

struct value {
	const char *text;
	size_t bytes;
};

static bool equals(struct value value, const char *text)
{
	return value.bytes == strlen(text) && memcmp(value.text, text, value.bytes) == 0;
}

/* Sets *ret to the value of a line that begins with "KEY=". */
static bool has_key(const char *line, size_t bytes, const char *key, struct value *ret)
{
	size_t length = strlen(key);

	if (bytes < length || memcmp(line, key, length) != 0)
		return false;
	*ret = (struct value){line + length, bytes - length};
	return true;
}

bool fd_name_valid(const char *name, size_t bytes)
{
	if (bytes == 0 || bytes > FD_NAME_BYTES_MAX)
		return false;
	for (size_t i = 0; i < bytes; i++) {
		if (name[i] < ' ' || name[i] >= 0x7f || name[i] == ':')
			return false;
	}
	return true;
}

/* Returns 0 if the value is not a number, or does not fit. */
static uint64_t number(struct value value)
{
	uint64_t n = 0;

	for (size_t i = 0; i < value.bytes; i++) {
		if (value.text[i] < '0' || value.text[i] > '9' || __builtin_mul_overflow(n, 10, &n) ||
		    __builtin_add_overflow(n, (uint64_t)(value.text[i] - '0'), &n))
			return 0;
	}
	return n;
}

static void take_line(struct notification *n, const char *line, size_t bytes)
{
	struct value value;

	if (has_key(line, bytes, "READY=", &value)) {
		n->ready |= equals(value, "1");
	} else if (has_key(line, bytes, "STOPPING=", &value)) {
		n->stopping |= equals(value, "1");
	} else if (has_key(line, bytes, "WATCHDOG=", &value)) {
		n->watchdog |= equals(value, "1");
		n->watchdog_trigger |= equals(value, "trigger");
	} else if (has_key(line, bytes, "FDSTORE=", &value)) {
		n->store |= equals(value, "1");
	} else if (has_key(line, bytes, "FDSTOREREMOVE=", &value)) {
		n->remove |= equals(value, "1");
	} else if (has_key(line, bytes, "BARRIER=", &value)) {
		n->barrier |= equals(value, "1");
	} else if (has_key(line, bytes, "FDNAME=", &value)) {
		if (n->name_given)
			return;
		n->name_given = true;
		n->name_valid = fd_name_valid(value.text, value.bytes);
		if (n->name_valid)
			memcpy(n->name, value.text, value.bytes);
	} else if (has_key(line, bytes, "EXTEND_TIMEOUT_USEC=", &value)) {
		if (n->extend_us == 0)
			n->extend_us = number(value);
	} else if (has_key(line, bytes, "STATUS=", &value)) {
		if (!n->status)
			n->status = value.text, n->status_bytes = value.bytes;
	} else if (has_key(line, bytes, STORE_ADOPTED_TEXT, &value)) {
		n->adopted |= value.bytes == 0;
	} else if (has_key(line, bytes, "MAINPID=", &value)) {
		n->main_pid = true;
	}
}

int notify_parse(const char *text, size_t bytes, struct notification *ret)
{
	struct notification n = {0};
	const char *end = text + bytes, *line_end;

	if (bytes > 0 && memchr(text, 0, bytes))
		return -EBADMSG;
	for (const char *line = text; line < end; line = line_end + 1) {
		line_end = memchr(line, '\n', (size_t)(end - line));
		if (!line_end)
			line_end = end;
		take_line(&n, line, (size_t)(line_end - line));
	}
	*ret = n;
	return 0;
}
