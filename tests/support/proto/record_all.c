#include "record_all.h"

const struct record_field place_rows[] = {
	FIELD_TEXT(struct place, device, 8),
	FIELD_U64_OR(struct place, bytes, 0, UINT64_MAX),
};
const struct record place_record = {.name = "place", RECORD(struct place, place_rows)};

static void read_letter(struct fields *f, const char *key, const msgpack_object *value, msgpack_zone *zone,
			void *ret)
{
	cr_assert_not_null(zone);
	if (value && value->type != MSGPACK_OBJECT_BOOLEAN)
		fields_wrong(f, key, "is no letter");
	*(char *)ret = value && value->via.boolean ? 'y' : 'n';
}

static void put_letter(struct message_writer *to, const char *key, const void *member)
{
	message_put_bool(to, key, *(const char *)member == 'y');
}

static const struct record_codec letter_codec = {.form = "letter", .read = read_letter, .put = put_letter};

static const struct record_field marked_rows[] = {
	FIELD_U64_OR(struct marked, mark, 0, UINT64_MAX),
	FIELD_TEXTS_MAYBE(struct marked, marks, 2, 8),
};

static int check_marked(const void *value, struct error *ret)
{
	return ((const struct marked *)value)->mark == 13 ? error_set(ret, -EINVAL, NULL, "a bad mark") : 0;
}

static const struct record marked_record = {RECORD(struct marked, marked_rows), .check = check_marked};

static const struct record_field all_rows[] = {
	FIELD_U64(struct all, number),
	FIELD_U64_OR(struct all, numbered, 7, 100),
	FIELD_U64_MAYBE(struct all, maybe_number),
	FIELD_I64_OR(struct all, wait, 0, -1),
	FIELD_BOOL(struct all, truth),
	FIELD_BOOL_OR(struct all, defaulted, true),
	FIELD_BOOL_MAYBE(struct all, maybe_truth),
	FIELD_TEXT(struct all, text, 4),
	FIELD_TEXT_MAYBE(struct all, maybe_text, 2000),
	FIELD_TEXT_OR(struct all, word, 8, "current"),
	FIELD_SPLICE(struct all, marked, struct marked, &marked_record),
	FIELD_ID(struct all, id),
	FIELD_ID_MAYBE(struct all, maybe_id),
	FIELD_ERROR(struct all, error),
	FIELD_ERROR_MAYBE(struct all, maybe_error),
	FIELD_MAP_MAYBE(struct all, place, struct place, &place_record),
	FIELD_U64S(struct all, numbers, 3),
	FIELD_U32S_MAYBE(struct all, users, 2),
	FIELD_TEXTS(struct all, texts, 2, 4),
	FIELD_TEXTS_MAYBE(struct all, maybe_texts, 2, 4),
	FIELD_MAPS(struct all, places, 2, struct place, &place_record),
	FIELD_MAPS_MAYBE(struct all, maybe_places, 2, struct place, &place_record),
	FIELD_MAPS_EACH(struct all, each, 4, struct place, &place_record),
	FIELD_TEXTS_EACH_MAYBE(struct all, each_text, 4, 4),
	FIELD_CODEC(struct all, letter, RECORD_MAYBE, char, &letter_codec),
	FIELD_NAME_MAYBE(struct all, reference),
};

static int check_all(const void *value, struct error *ret)
{
	const struct all *given = value;

	return given->number == 666 ? error_set(ret, -EINVAL, "another one", "the number is of the beast") : 0;
}

const struct record all_record = {RECORD(struct all, all_rows), .check = check_all};

struct all all, got;
struct message_writer w;
struct message m;
struct error record_error;

void begin(void)
{
	message_writer_init(&w, 1 << 20);
	message_begin_map(&w, NULL);
}

void end(void)
{
	const char *why;

	message_end(&w);
	cr_assert_eq(message_finish(&w), 0);
	cr_assert_eq(message_read_body(w.buffer.data, w.buffer.size, &m, &why), 0, "%s", why);
}

void record_clear(void)
{
	message_clear(&m);
	message_writer_clear(&w);
}

const struct version_id some_id = {{1, 2, 3}};
const struct digest some_digest = {{4, 5, 6}};
const struct error some_error = {-ENOSPC, "no room", "retire one"};
const struct place some_places[] = {{"host", 5}, {"GPU-1", 0}};
const uint64_t some_numbers[] = {1, UINT64_MAX, 3};
const char *const some_texts[] = {"a", ""};

void record_begin(void)
{
	all = (struct all){
		.number = 1,
		.numbered = 7,
		.defaulted = true,
		.text = "text",
		.word = "current",
		.id = &some_id,
		.error = &some_error,
		.letter = 'n',
	};
}

void put_all(void)
{
	record_clear();
	begin();
	record_put(&w, &all_record, &all);
	end();
}
