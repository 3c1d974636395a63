#include "store_answer.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LAST_LINE "END\n"
#define ANY_NAME "*"
/* The bytes of the text that are kept free for what comes after the refusals: "-2147483648 *" and
 * the last line. */
#define KEPT_FREE 24

static void put_line(struct store_answer *answer, const char *name, int code)
{
	answer->bytes += (size_t)snprintf(answer->text + answer->bytes, sizeof(answer->text) - answer->bytes,
					  "%d %s\n", -code, name);
}

void store_answer_refuse(struct store_answer *answer, const char *name, int code)
{
	/* A line has a number of at most 11 characters, a space, the name and a line's end. */
	if (answer->bytes + strlen(name) + 13 + KEPT_FREE <= STORE_ANSWER_BYTES) {
		put_line(answer, name, code);
	} else if (!answer->has_more) {
		answer->has_more = true;
		put_line(answer, ANY_NAME, code);
	}
}

void store_answer_send(struct store_answer *answer, int fd)
{
	struct pollfd ready = {.fd = fd, .events = POLLOUT};

	memcpy(answer->text + answer->bytes, LAST_LINE, sizeof(LAST_LINE));
	answer->bytes += strlen(LAST_LINE);
	/* If the descriptor is anything but an empty pipe, its sender gets no answer. */
	if (poll(&ready, 1, 0) == 1 && ready.revents & POLLOUT)
		(void)!write(fd, answer->text, answer->bytes);
	answer->bytes = 0;
	answer->has_more = false;
}

bool store_answer_is_whole(const char *text)
{
	size_t bytes = strlen(text), last = strlen(LAST_LINE);

	if (bytes < last || strcmp(text + bytes - last, LAST_LINE) != 0)
		return false;
	return bytes == last || text[bytes - last - 1] == '\n';
}

static bool line_names(const char *line, const char *name)
{
	const char *space = strchr(line, ' ');
	size_t length = strlen(name);

	return space && strncmp(space + 1, name, length) == 0 && space[1 + length] == '\n';
}

int store_answer_find(const char *text, const char *name)
{
	for (const char *line = text; line && *line && strcmp(line, LAST_LINE) != 0;) {
		const char *end = strchr(line, '\n');

		if (line_names(line, name) || line_names(line, ANY_NAME))
			return -(int)strtol(line, NULL, 10);
		line = end ? end + 1 : NULL;
	}
	return 0;
}
