/* A second format, which only this test has: all that the loader does with files, it does with those of any format. This
 * file's `formats` is linked in place of the loader's. */
#include "tests/support/loader/opened.h"

#include "../../loader/files/format.h"
#include "../../proto/index/dtype.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A tiny file is "TINY", the length of a name, the name, and one tensor of bytes. */
#define TINY_PREFIX 5

static bool tiny_begins(const struct format_head *head)
{
	return head->count >= TINY_PREFIX && memcmp(head->bytes, "TINY", 4) == 0;
}

static int tiny_read(const struct source_file *file, const struct format_head *head, struct format_content *ret,
		     struct error *why)
{
	struct format_content content = {.count = 1};
	size_t length = head->bytes[4], header = TINY_PREFIX + length;

	if (!tiny_begins(head) || header > head->count)
		return error_set(why, -EBADMSG, NULL, "%s is a damaged tiny file", file->path);
	content.tensors = calloc(1, sizeof(*content.tensors));
	content.metadata = calloc(1, sizeof(*content.metadata));
	content.dims = calloc(1, sizeof(*content.dims));
	content.texts = strndup((const char *)head->bytes + TINY_PREFIX, length);
	cr_assert(content.tensors && content.metadata && content.dims && content.texts);
	content.dims[0] = head->file_bytes - header;
	content.tensors[0] = (struct format_tensor){
		.name = content.texts,
		.dtype = dtype_from_name("U8"),
		.ndim = 1,
		.shape = content.dims,
		.offset = header,
		.bytes = content.dims[0],
	};
	content.metadata[content.metadata_count++] = (struct format_text){"format", "tiny"};
	*ret = content;
	return 0;
}

static const struct format format_tiny = {
	.name = "tiny",
	.file_end = ".tiny",
	.index_end = ".tiny.index.json",
	.begins = tiny_begins,
	.read = tiny_read,
};

const struct format *const formats[] = {&format_safetensors, &format_tiny, NULL};

TestSuite(formats, .init = source_setup, .fini = source_teardown);

static int open_path(const char *path)
{
	char *roots[] = {folder};

	memset(&error, 0, sizeof(error));
	return source_open(path, &(struct load_choice){0}, &(struct roots){.paths = roots, .count = 1}, &source,
			   &error);
}

static void refuse(const char *path, int code, const char *says)
{
	int r = open_path(path);

	cr_assert_eq(r, code, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

static void write_tiny(const char *name, const char *tensor, size_t bytes)
{
	char data[64] = "TINY";
	size_t length = strlen(tensor);

	data[4] = (char)length;
	memcpy(data + TINY_PREFIX, tensor, length);
	write_bytes(in_folder("%s", name), data, TINY_PREFIX + length + bytes);
}

static void write_text(const char *name, const char *text)
{
	write_bytes(in_folder("%s", name), text, strlen(text));
}

static void loads(const char *path, const char *tensor, uint64_t bytes)
{
	cr_assert_eq(open_path(path), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 1);
	cr_assert_str_eq(source.tensors[0].name, tensor);
	cr_assert_eq(source.tensors[0].bytes, bytes);
	cr_assert_eq(source.bytes, bytes);
}

Test(formats, a_file_is_read_by_how_it_begins)
{
	write_tiny("any-name", "weight", 7);
	loads(in_folder("any-name"), "weight", 7);
	cr_assert_eq(source.tensors[0].offset, TINY_PREFIX + strlen("weight"));
	cr_assert_str_eq(source.files[0].content.metadata[0].value, "tiny");
}

Test(formats, a_folder_is_loaded_from_its_model_file)
{
	write_tiny("model.tiny", "model", 3);
	write_tiny("other.tiny", "other", 3);
	loads(folder, "model", 3);
}

Test(formats, a_folder_with_several_files_is_refused_by_the_name_of_their_format)
{
	write_tiny("a.tiny", "a", 1);
	write_tiny("b.tiny", "b", 1);
	refuse(folder, -EINVAL, "has 2 tiny files, and none is named model.tiny: a.tiny, b.tiny");
}

Test(formats, shards_are_found_by_their_index)
{
	write_tiny("s1.tiny", "a", 1);
	write_tiny("s2.tiny", "b", 2);
	write_text("model.tiny.index.json", "{\"weight_map\":{\"a\":\"s1.tiny\",\"b\":\"s2.tiny\"}}");
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 2);
	cr_assert_eq(source.bytes, 3);
}

Test(formats, files_per_rank_are_found_by_their_names)
{
	write_tiny("model-rank-0-part-0.tiny", "a", 1);
	write_tiny("model-rank-1-part-0.tiny", "a", 2);
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert_eq(source.world, 2);
	cr_assert_eq(source.ranks[1].bytes, 2);
	source_close(&source);
	remove(in_folder("model-rank-0-part-0.tiny"));
	refuse(folder, -ENOENT, "has files per rank, but no model-rank-0-part-0.tiny");
}

Test(formats, the_first_format_of_a_folder_counts)
{
	write_tiny("model.tiny", "tiny", 4);
	write_safetensors(in_folder("any.safetensors"),
			  "{\"safe\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}", 4);
	loads(folder, "safe", 4);
}

Test(formats, the_format_that_knows_the_file_says_what_is_wrong_with_it)
{
	write_bytes(in_folder("a.safetensors"), "TINY\377abc", 8);
	refuse(in_folder("a.safetensors"), -EBADMSG, "is a damaged tiny file");
}

Test(formats, a_file_that_no_format_knows_is_judged_by_its_name)
{
	write_bytes(in_folder("a.tiny"), "\1\2\3\4\5\6\7\10\11", 9);
	refuse(in_folder("a.tiny"), -EBADMSG, "is a damaged tiny file");
	write_bytes(in_folder("a"), "\1\2\3\4\5\6\7\10\11", 9);
	refuse(in_folder("a"), -ENOTSUP, "is no safetensors file: no header begins at byte 8");
}

Test(formats, a_foreign_file_is_named_whatever_its_name_says)
{
	write_bytes(in_folder("a.tiny"), "GGUF\3\0\0\0\0\0\0\0", 12);
	refuse(in_folder("a.tiny"), -ENOTSUP, "is a GGUF file, no safetensors file");
}
