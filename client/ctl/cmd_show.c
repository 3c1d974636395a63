/* show: one version, from its index alone. */
#include "commands.h"

#include "answer.h"
#include "exit.h"
#include "line.h"
#include "output.h"
#include "table.h"
#include "version.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *device;
static struct option_number rank;
static const struct option_row show_options[] = {
	ROW_DEVICE(device, "the replica on this device; needed if there are several"),
	ROW_RANK(rank),
	{0},
};

/* What is shown. */
struct shown {
	struct gpuwm_client *admin; /* NULL: any worker gets it */
	struct gpuwm_handles *handles;
	char refusal[1100]; /* why workers don't get it; "" */
	json_t *list; /* the answer to `list` for its model */
};

/* The version as `list` tells it; NULL: it is gone from there. */
static const json_t *listed(const struct shown *shown)
{
	return answer_version(shown->list, gpuwm_handles_version(shown->handles)->id);
}

/* What the version has beside it: its companions, as `list` tells them. */
static json_t *companions_of(const json_t *list, const char *id)
{
	json_t *companions = json_array(), *version;
	size_t i;

	json_array_foreach(json_object_get(list, "versions"), i, version) {
		if (strcmp(answer_text(version, "companion_of"), id) == 0)
			json_array_append_new(companions,
					      json_pack("{s:O, s:O, s:O, s:O, s:O, s:O, s:O}", "version",
							json_object_get(version, "version"), "model",
							json_object_get(version, "model"), "tag",
							json_object_get(version, "tag"), "state",
							json_object_get(version, "state"), "bytes",
							json_object_get(version, "bytes"), "owner_uid",
							json_object_get(version, "owner_uid"), "by_operator",
							json_object_get(version, "by_operator")));
	}
	return companions;
}

/* ---- how well they are packed ------------------------------------------ */

static int by_place(const void *a, const void *b)
{
	const struct gpuwm_tensor *x = a, *y = b;

	if (x->segment != y->segment)
		return x->segment < y->segment ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* What tensors take of the segments: of those that share a place (tied), one counts. */
static int tensors_bytes(const struct gpuwm_handles *handles, uint64_t *ret_bytes)
{
	const uint64_t count = gpuwm_handles_tensor_count(handles);
	struct gpuwm_tensor *tensors = calloc(count + 1, sizeof(*tensors));
	uint64_t bytes = 0, filled = 0;

	if (!tensors)
		return -ENOMEM;
	for (uint64_t i = 0; i < count; i++)
		if (gpuwm_handles_tensor_at(handles, i, &tensors[filled]) == 0 && tensors[filled].bytes > 0)
			filled++;
	qsort(tensors, filled, sizeof(*tensors), by_place);
	for (uint64_t i = 0; i < filled; i++)
		if (i == 0 || by_place(&tensors[i - 1], &tensors[i]) != 0)
			bytes += tensors[i].bytes;
	free(tensors);
	*ret_bytes = bytes;
	return 0;
}

/* ---- as JSON ----------------------------------------------------------- */

static json_t *version_json(const struct shown *shown, uint64_t tensor_bytes)
{
	const struct gpuwm_version_info *info = gpuwm_handles_version(shown->handles);
	const json_t *in_list = listed(shown);
	json_t *others = json_object_get(in_list, "shared_with"), *source = json_object_get(in_list, "source");
	char layout[33], content[33];
	json_t *version = json_pack(
		"{s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:I, s:I, s:i, s:I, s:s, s:s}", "version", info->id,
		"model", info->model, "tag", info->tag, "device", info->device, "rank", (int)info->rank,
		"world", (int)info->world, "generation", (json_int_t)info->generation, "bytes",
		(json_int_t)info->bytes, "tensor_bytes", (json_int_t)tensor_bytes, "segments",
		(int)info->segments, "tensors", (json_int_t)info->tensors, "layout",
		hex_text(info->layout, 16, layout), "content", hex_text(info->content, 16, content));

	json_object_set_new(version, "companions", companions_of(shown->list, info->id));
	if (json_object_get(in_list, "companion_of"))
		json_object_set(version, "companion_of", json_object_get(in_list, "companion_of"));
	json_object_set_new(version, "shared_bytes",
			    json_integer((json_int_t)answer_number(in_list, "shared_bytes")));
	json_object_set_new(version, "shared_with", others ? json_incref(others) : json_array());
	if (source)
		json_object_set(version, "source", source);
	return version;
}

static json_t *tensor_json(const struct gpuwm_tensor *tensor)
{
	json_t *shape = json_array(), *strides = json_array();
	char digest[33];

	for (uint32_t i = 0; i < tensor->ndim; i++) {
		json_array_append_new(shape, json_integer((json_int_t)tensor->shape[i]));
		json_array_append_new(strides, json_integer(tensor->strides[i]));
	}
	return json_pack("{s:s, s:s?, s:o, s:o, s:I, s:i, s:I, s:s}", "name", tensor->name, "dtype",
			 gpuwm_dtype_name(tensor->dtype), "shape", shape, "strides", strides, "bytes",
			 (json_int_t)tensor->bytes, "segment", (int)tensor->segment, "offset",
			 (json_int_t)tensor->offset, "digest", hex_text(tensor->digest, 16, digest));
}

static json_t *files_json(const struct gpuwm_handles *handles)
{
	json_t *files = json_array();
	const char *name;
	const void *data;
	uint32_t bytes;

	for (uint32_t i = 0; gpuwm_handles_file_at(handles, i, &name, &data, &bytes) == 0; i++)
		json_array_append_new(files, json_pack("{s:s, s:I}", "name", name, "bytes", (json_int_t)bytes));
	return files;
}

static int json_show(const struct shown *shown, uint64_t tensor_bytes)
{
	const struct gpuwm_handles *handles = shown->handles;
	json_t *metadata = json_object(), *tensors = json_array();
	const char *name, *value;
	struct gpuwm_tensor tensor;

	for (uint32_t i = 0; gpuwm_handles_metadata_at(handles, i, &name, &value) == 0; i++)
		json_object_set_new(metadata, name, json_string(value));
	for (uint64_t i = 0; gpuwm_handles_tensor_at(handles, i, &tensor) == 0; i++)
		json_array_append_new(tensors, tensor_json(&tensor));
	return answer_print(json_pack("{s:o, s:s*, s:o, s:o, s:o}", "version",
				      version_json(shown, tensor_bytes), "refusal",
				      shown->refusal[0] ? shown->refusal : NULL, "metadata", metadata, "files",
				      files_json(handles), "tensors", tensors));
}

/* ---- as tables --------------------------------------------------------- */

static void shared_show(const json_t *version)
{
	const json_t *others = json_object_get(version, "shared_with"), *other;
	struct line line = {0};
	char size[SHORT_TEXT];
	size_t i;

	if (answer_number(version, "shared_bytes") == 0)
		return;
	line_add(&line,
		 "shares %s with other versions:", size_text(answer_number(version, "shared_bytes"), size));
	json_array_foreach(others, i, other) {
		line_add(&line, "%s %s@%s", i > 0 ? "," : "", answer_text(other, "model"),
			 answer_text(other, "tag"));
	}
	line_say(&line);
}

static void companions_show(const json_t *list, const json_t *in_list)
{
	json_t *companions = companions_of(list, answer_text(in_list, "version"));
	const json_t *companion, *of = answer_version(list, answer_text(in_list, "companion_of"));
	char size[SHORT_TEXT];
	size_t i;

	if (of)
		say("a companion of %s@%s: retired when that is freed", answer_text(of, "model"),
		    answer_text(of, "tag"));
	json_array_foreach(companions, i, companion) {
		say("companion %s@%s, %s, made by %s %" PRIu64, answer_text(companion, "model"),
		    answer_text(companion, "tag"), size_text(answer_number(companion, "bytes"), size),
		    json_is_true(json_object_get(companion, "by_operator")) ? "an operator," : "user",
		    answer_number(companion, "owner_uid"));
	}
	json_decref(companions);
}

static void version_show(const struct shown *shown, uint64_t tensor_bytes)
{
	const struct gpuwm_version_info *info = gpuwm_handles_version(shown->handles);
	const json_t *in_list = listed(shown);
	const char *source = answer_text(in_list, "source");
	char size[SHORT_TEXT], tensors[SHORT_TEXT], digest[33];

	say("%s@%s  %s", info->model, info->tag, info->id);
	say("on %s, rank %" PRIu32 " of %" PRIu32 ", generation %" PRIu64, info->device, info->rank,
	    info->world, info->generation);
	if (*source) /* a version that has none can't be demoted to its files */
		say("source %s", source);
	say("size %s, segments %" PRIu32 ", tensors %" PRIu64 " of %s (%.1f %%)", size_text(info->bytes, size),
	    info->segments, info->tensors, size_text(tensor_bytes, tensors),
	    info->bytes ? 100.0 * (double)tensor_bytes / (double)info->bytes : 100.0);
	if (answer_number(in_list, "host_copy_bytes"))
		say("has a host copy of %s: a demotion to host copies nothing",
		    size_text(answer_number(in_list, "host_copy_bytes"), size));
	shared_show(in_list);
	companions_show(shown->list, in_list);
	if (shown->refusal[0])
		say("workers don't get this version: %s", shown->refusal);
	say("layout  %s", hex_text(info->layout, 16, digest));
	say("content %s", hex_text(info->content, 16, digest));
	putchar('\n');
}

/* Prints a table of these rows, and frees them. Nothing if there are none. */
static int rows_show(const struct column *columns, json_t *rows)
{
	int code = EXIT_DONE;

	if (json_array_size(rows) > 0) {
		code = table_of(columns, rows);
		putchar('\n');
	}
	json_decref(rows);
	return code;
}

static const char *cell_value(const json_t *row, const char *key, char text[CELL_TEXT])
{
	const char *value = answer_text(row, key);

	if (!strchr(value, '\n'))
		return value;
	snprintf(text, CELL_TEXT, "(several lines, see below)");
	return text;
}

/* Prints a text such as a cut plan line by line. */
static void lines_show(const char *name, const char *value)
{
	say("%s:", name);
	while (*value) {
		int length = (int)strcspn(value, "\n");

		say("  %.*s", length, value);
		value += length + (value[length] == '\n');
	}
	putchar('\n');
}

static int texts_show(const struct gpuwm_handles *handles)
{
	static const struct column metadata_columns[] = {
		{"METADATA", cell_text, "name"}, {"VALUE", cell_value, "value"}, {0}};
	static const struct column file_columns[] = {
		{"FILE", cell_text, "name"}, {">SIZE", cell_size, "bytes"}, {0}};
	json_t *metadata = json_array();
	const char *name, *value;
	int code;

	for (uint32_t i = 0; gpuwm_handles_metadata_at(handles, i, &name, &value) == 0; i++)
		json_array_append_new(metadata, json_pack("{s:s, s:s}", "name", name, "value", value));
	code = rows_show(metadata_columns, metadata);
	if (code != EXIT_DONE)
		return code;
	for (uint32_t i = 0; gpuwm_handles_metadata_at(handles, i, &name, &value) == 0; i++)
		if (strchr(value, '\n'))
			lines_show(name, value);
	return rows_show(file_columns, files_json(handles));
}

static const char *tensor_dtype(const json_t *tensor, const char *key, char text[CELL_TEXT])
{
	const char *name = cell_text(tensor, key, text);

	return *name ? name : "?";
}

static const char *tensor_shape(const json_t *tensor, const char *key, char text[CELL_TEXT])
{
	const json_t *extent;
	size_t length = 1, i;

	strcpy(text, "[");
	json_array_foreach(json_object_get(tensor, key), i, extent) {
		if (length < CELL_TEXT - 24)
			length += (size_t)snprintf(text + length, CELL_TEXT - length, "%s%" PRIu64,
						   i ? ", " : "", (uint64_t)json_integer_value(extent));
	}
	snprintf(text + length, CELL_TEXT - length, "]");
	return text;
}

/* One tensor after another: there may be a million. */
static int tensors_show(const struct gpuwm_handles *handles)
{
	static const struct column columns[] = {
		{"TENSOR", cell_text, "name"},
		{"DTYPE", tensor_dtype, "dtype"},
		{"SHAPE", tensor_shape, "shape"},
		{">SIZE", cell_size, "bytes"},
		{">SEGMENT", cell_number, "segment"},
		{">OFFSET", cell_number, "offset"},
		{0},
	};
	struct table *table = table_new(columns);
	struct gpuwm_tensor tensor;

	for (uint64_t i = 0; gpuwm_handles_tensor_at(handles, i, &tensor) == 0; i++) {
		json_t *row = tensor_json(&tensor);

		table_row(table, row);
		json_decref(row);
	}
	return table_print(table);
}

static int shown_print(const struct shown *shown)
{
	const struct gpuwm_version_info *info = gpuwm_handles_version(shown->handles);
	uint64_t tensor_bytes;
	int code;

	if (output_form() == OUTPUT_NAME) {
		if (info->model[0] == '~')
			say("%s", info->id);
		else
			say("%s@%s", info->model, info->tag);
		return EXIT_DONE;
	}
	code = tensors_bytes(shown->handles, &tensor_bytes);
	if (code < 0)
		return exit_with(exit_code_of(code), NULL, "gpuwmctl is out of memory");
	if (output_is_data())
		return json_show(shown, tensor_bytes);
	version_show(shown, tensor_bytes);
	code = texts_show(shown->handles);
	return code == EXIT_DONE ? tensors_show(shown->handles) : code;
}

/* ---- taking ------------------------------------------------------------ */

/* What an operator sees of a version that workers don't get. Who is no operator is told what workers are told. */
static int shown_look(const struct arguments *arguments, struct gpuwm_attach_options *options,
		      struct shown *shown)
{
	struct gpuwm_connect_options connect = GPUWM_OPTIONS(struct gpuwm_connect_options);
	const struct gpuwm_error *error = gpuwm_error();
	int code = exit_code_of(error->code);
	char detail[1100];

	snprintf(shown->refusal, sizeof(shown->refusal), "%s", error->message);
	snprintf(detail, sizeof(detail), "%s", error->detail);
	connect.socket = arguments->socket;
	connect.name = "gpuwmctl";
	connect.flags = GPUWM_CONNECT_ADMIN;
	options->look = true;
	if (gpuwm_connect(&connect, &shown->admin) < 0)
		return exit_with(code, detail, "%s", shown->refusal);
	if (gpuwm_get_handles(shown->admin, arguments->positional[0], options, &shown->handles) < 0)
		return exit_with_error();
	return EXIT_DONE;
}

/* Sets *ret_shown and shows a version that does not lie on its devices: to take its handles would promote it. */
static int show_demoted(struct gpuwm_client *client, const struct arguments *arguments, bool *ret_shown)
{
	const json_t *version;
	json_t *list;
	int code = answer_get(client, "list", NULL, &list);

	if (code != EXIT_DONE)
		return code;
	version = answer_version(list, answer_ref(list, arguments->positional[0]));
	*ret_shown = version && json_object_get(version, "tier");
	if (*ret_shown)
		code = tier_show(version);
	json_decref(list);
	return code;
}

static int show_run(struct gpuwm_client *client, const struct arguments *arguments)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct shown shown = {0};
	bool is_shown = false;
	int code = show_demoted(client, arguments, &is_shown), r;

	if (code != EXIT_DONE || is_shown)
		return code;
	if (device)
		code = device_resolve(client, device, &options.device);
	if (code != EXIT_DONE)
		return code;
	options.rank = (uint32_t)rank.value;
	r = gpuwm_get_handles(client, arguments->positional[0], &options, &shown.handles);
	if (r == -EBADMSG || r == -ENOENT) /* tainted; retiring */
		code = shown_look(arguments, &options, &shown);
	else if (r < 0)
		code = exit_with_error();
	if (code == EXIT_DONE)
		code = answer_get(shown.admin ? shown.admin : client, "list",
				  gpuwm_handles_version(shown.handles)->model, &shown.list);
	if (code == EXIT_DONE)
		code = shown_print(&shown);
	json_decref(shown.list);
	gpuwm_handles_release(shown.handles);
	gpuwm_close(shown.admin);
	return code;
}

const struct command command_show = {
	.name = "show",
	.words = {{"REF", WORD_REF, false}},
	.summary = "show one version: its tensors, metadata and files",
	.options = show_options,
	.example = "gpuwmctl show llama@v2 --device cuda:0",
	.run = show_run,
};
