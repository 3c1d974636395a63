#include "slots.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The columns stand in the order that the answer's second line says. HAProxy adds columns at the end. */
enum column { COLUMN_NAME, COLUMN_IP, COLUMN_ADMIN, COLUMN_PORT, COLUMNS };
static const char *const column_names[COLUMNS] = {
	[COLUMN_NAME] = "srv_name",
	[COLUMN_IP] = "srv_addr",
	[COLUMN_ADMIN] = "srv_admin_state",
	[COLUMN_PORT] = "srv_port",
};
#define WORDS_MAX 64 /* HAProxy 2.6 has 25 columns */

/* Bits of srv_admin_state (HAProxy's management guide): maintenance that somebody forced, that another server or an address that
 * can't be resolved brought; and drain that was forced. */
#define ADMIN_MAINT (0x01 | 0x02 | 0x20)
#define ADMIN_DRAIN 0x08

static size_t split(char *line, char *ret_words[WORDS_MAX])
{
	size_t count = 0;
	char *left;

	for (char *word = strtok_r(line, " ", &left); word && count < WORDS_MAX;
	     word = strtok_r(NULL, " ", &left))
		ret_words[count++] = word;
	return count;
}

/* Fails with -EBADMSG if a column is missing. */
static int read_columns(char *line, size_t ret_places[COLUMNS])
{
	char *words[WORDS_MAX];
	size_t count;

	if (strncmp(line, "# ", 2) != 0)
		return -EBADMSG;
	count = split(line + 2, words);
	for (int i = 0; i < COLUMNS; i++) {
		size_t at = 0;

		while (at < count && strcmp(words[at], column_names[i]) != 0)
			at++;
		if (at == count)
			return -EBADMSG;
		ret_places[i] = at;
	}
	return 0;
}

static int read_slot(char *line, const size_t places[COLUMNS], struct slot *ret)
{
	char *words[WORDS_MAX];
	size_t count = split(line, words);
	unsigned long admin;

	for (int i = 0; i < COLUMNS; i++) {
		if (places[i] >= count)
			return -EBADMSG;
	}
	if (strlen(words[places[COLUMN_NAME]]) > SLOT_NAME_BYTES_MAX)
		return -EBADMSG;
	admin = strtoul(words[places[COLUMN_ADMIN]], NULL, 10);
	*ret = (struct slot){.port = (unsigned)strtoul(words[places[COLUMN_PORT]], NULL, 10),
			     .state = SLOT_READY};
	if (admin & ADMIN_MAINT)
		ret->state = SLOT_MAINT;
	else if (admin & ADMIN_DRAIN)
		ret->state = SLOT_DRAIN;
	strcpy(ret->name, words[places[COLUMN_NAME]]);
	if (strlen(words[places[COLUMN_IP]]) < sizeof(ret->ip))
		strcpy(ret->ip, words[places[COLUMN_IP]]);
	return 0;
}

/* The lines after the first one, which is the format's version. */
static int read_lines(char *text, struct slots *ret)
{
	size_t places[COLUMNS];
	char *left, *line = strtok_r(text, "\n", &left);
	int r = line ? read_columns(line, places) : -EBADMSG;

	while (r == 0 && (line = strtok_r(NULL, "\n", &left))) {
		struct slot *items = realloc(ret->items, (ret->count + 1) * sizeof(*items));

		if (!items)
			return -ENOMEM;
		ret->items = items;
		r = read_slot(line, places, &items[ret->count]);
		ret->count += r == 0;
	}
	return r;
}

int slots_read(char *text, struct slots *ret)
{
	struct slots slots = {0};
	int r = strncmp(text, "1\n", 2) == 0 ? read_lines(text + 2, &slots) : -EBADMSG;

	if (r < 0)
		slots_clear(&slots);
	*ret = slots;
	return r;
}

void slots_clear(struct slots *slots)
{
	free(slots->items);
	*slots = (struct slots){0};
}

void slot_address(const struct slot *slot, char ret[ADDRESS_BYTES_MAX + 1])
{
	snprintf(ret, ADDRESS_BYTES_MAX + 1, strchr(slot->ip, ':') ? "[%s]:%u" : "%s:%u", slot->ip, slot->port);
}
