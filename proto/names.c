#include "names.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

static bool is_letter_or_digit(char c)
{
	return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_digits(const char *text, const char *digits)
{
	return strspn(text, digits) == 32 && text[32] == 0;
}

const char *name_wrong(const char *text)
{
	size_t bytes = strlen(text);

	if (bytes == 0)
		return "is empty";
	if (bytes > NAME_BYTES_MAX)
		return "is longer than 128 bytes";
	if (text[0] == '.')
		return "has a leading '.'";
	if (text[0] == '/')
		return "has a leading '/'";
	if (strstr(text, ".."))
		return "has \"..\" in it";
	for (const char *c = text; *c; c++)
		if (!is_letter_or_digit(*c) && !strchr("._-/", *c))
			return "has a character other than letters, digits, '.', '_', '-' and '/'";
	if (is_digits(text, "0123456789abcdefABCDEF"))
		return "is 32 hexadecimal digits: only an id is, in lower case";
	return NULL;
}

void nameless_model(uint32_t uid, char ret[NAME_BYTES_MAX + 1])
{
	snprintf(ret, NAME_BYTES_MAX + 1, "~%u", (unsigned)uid);
}

bool name_is_nameless(const char *model)
{
	return model[0] == '~';
}

int ref_parse(const char *text, struct ref *ret_ref, const char **ret_why)
{
	const char *at = strchr(text, '@');
	size_t model_bytes = at ? (size_t)(at - text) : strlen(text);
	struct ref ref = {0};

	if (hex128_parse(text, ref.id.bytes) == 0) {
		ref.has_id = true;
		*ret_ref = ref;
		return 0;
	}
	if (model_bytes > NAME_BYTES_MAX || (at && strlen(at + 1) > NAME_BYTES_MAX)) {
		*ret_why = "is longer than 128 bytes";
		return -EINVAL;
	}
	memcpy(ref.model, text, model_bytes);
	strcpy(ref.name, at ? at + 1 : ALIAS_CURRENT);
	*ret_why = at && !ref.model[0] ? "has no model before its '@'" : name_wrong(ref.model);
	if (!*ret_why)
		*ret_why = ref.name[0] ? name_wrong(ref.name) : "has nothing after its '@'";
	if (*ret_why)
		return -EINVAL;
	*ret_ref = ref;
	return 0;
}

void hex128_format(const uint8_t bytes[16], char text[VERSION_ID_TEXT])
{
	static const char digits[] = "0123456789abcdef";

	for (int i = 0; i < 16; i++) {
		text[2 * i] = digits[bytes[i] >> 4];
		text[2 * i + 1] = digits[bytes[i] & 15];
	}
	text[32] = 0;
}

static uint8_t digit_value(char c)
{
	return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

int hex128_parse(const char *text, uint8_t ret_bytes[16])
{
	if (!is_digits(text, "0123456789abcdef"))
		return -EINVAL;
	for (int i = 0; i < 16; i++)
		ret_bytes[i] = (uint8_t)(digit_value(text[2 * i]) << 4 | digit_value(text[2 * i + 1]));
	return 0;
}

bool version_id_equal(const struct version_id *a, const struct version_id *b)
{
	return !memcmp(a->bytes, b->bytes, sizeof a->bytes);
}

int version_id_new(struct version_id *ret_id)
{
	struct version_id id;
	ssize_t got;

	/* The kernel returns this few bytes at once. A signal can interrupt the call only before
	 * the source is seeded. */
	do
		got = getrandom(id.bytes, sizeof id.bytes, 0);
	while (got < 0 && errno == EINTR);
	if (got < 0)
		return -errno;
	*ret_id = id;
	return 0;
}
