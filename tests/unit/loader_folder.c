/* What a folder is loaded from, and what files are that are no safetensors. */
#include "tests/support/loader/opened.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

TestSuite(folder, .init = source_setup, .fini = source_teardown);

static int open_path(const char *path)
{
	char *paths[] = {folder};
	const struct roots roots = {.paths = paths, .count = 1};
	int r;

	source_close(&source);
	memset(&error, 0, sizeof(error));
	r = source_open(path, &(struct load_choice){0}, &roots, &source, &error);
	return r < 0 ? r : source_read_extras(&source, &roots, &error);
}

static void refuse(int code, const char *says)
{
	int r = open_path(folder);

	cr_assert_eq(r, code, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

static void write_text(const char *name, const char *text)
{
	write_bytes(in_folder("%s", name), text, strlen(text));
}

/* A file with one tensor, which is named as told. */
static void write_file(const char *name, const char *tensor)
{
	char header[128];

	snprintf(header, sizeof(header), "{\"%s\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}",
		 tensor);
	write_safetensors(in_folder("%s", name), header, 4);
}

static void write_index(const char *name, const char *tensor, const char *shard)
{
	char text[256];

	snprintf(text, sizeof(text), "{\"weight_map\":{\"%s\":\"%s\"}}", tensor, shard);
	write_text(name, text);
}

/* Opens the folder as a source, and asserts that `tensor` is the only tensor of the source. */
static void loads(const char *tensor)
{
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 1);
	cr_assert_str_eq(source.tensors[0].name, tensor);
}

/* ---- which file of a folder ---------------------------------------------- */

Test(folder, takes_model_safetensors_and_says_that_an_index_is_there_too)
{
	write_file("model.safetensors", "whole");
	write_file("s1.safetensors", "sharded");
	loads("whole");
	cr_assert_str_eq(source.notes[0], "");
	write_index("model.safetensors.index.json", "sharded", "s1.safetensors");
	write_index("other.safetensors.index.json", "sharded", "s1.safetensors");
	loads("whole");
	cr_assert(strstr(source.notes[0], "has model.safetensors and model.safetensors.index.json"), "%s",
		  source.notes[0]);
}

Test(folder, takes_the_usual_index_before_others)
{
	write_file("s1.safetensors", "usual");
	write_file("s2.safetensors", "other");
	write_index("model.safetensors.index.json", "usual", "s1.safetensors");
	write_index("a.safetensors.index.json", "other", "s2.safetensors");
	loads("usual");
}

Test(folder, takes_the_only_index)
{
	write_file("diffusion_pytorch_model-00001-of-00001.safetensors", "unet");
	write_file("beside.safetensors", "no");
	write_index("diffusion_pytorch_model.safetensors.index.json", "unet",
		    "diffusion_pytorch_model-00001-of-00001.safetensors");
	write_text("config.json", "{}");
	loads("unet");
	cr_assert_eq(source.extra_count, 1);
}

Test(folder, takes_the_only_file_with_its_small_files)
{
	write_file("diffusion_pytorch_model.safetensors", "unet");
	write_file(".cache.safetensors", "unfinished");
	write_text("diffusion_pytorch_model.bin", "the same, as pickle");
	write_text("config.json", "{\"a\":1}");
	loads("unet");
	cr_assert_eq(source.extra_count, 1);
	cr_assert_str_eq(source.extras[0].name, "config.json");
}

Test(folder, lists_files_of_which_none_is_the_model)
{
	write_file("b.safetensors", "b");
	write_file("a.safetensors", "a");
	refuse(-EINVAL,
	       "has 2 safetensors files, and none is named model.safetensors: a.safetensors, b.safetensors");
	cr_assert(strstr(error.detail, "name one of them"), "%s", error.detail);
	for (char c = 'c'; c < 'h'; c++)
		write_file((char[]){c, '.', 's', 'a', 'f', 'e', 't', 'e', 'n', 's', 'o', 'r', 's', 0}, "c");
	refuse(-EINVAL, "has 7 safetensors files");
	cr_assert(strstr(error.message, "d.safetensors, and 3 more"), "%s", error.message);
}

Test(folder, lists_indices_of_which_none_is_the_models)
{
	write_file("s.safetensors", "a");
	write_index("y.safetensors.index.json", "a", "s.safetensors");
	write_index("x.safetensors.index.json", "a", "s.safetensors");
	refuse(-EINVAL, "has 2 indices of shards, and none is named model.safetensors.index.json: "
			"x.safetensors.index.json, y.safetensors.index.json");
}

Test(folder, names_the_folders_of_a_pipeline)
{
	write_text("model_index.json", "{}");
	refuse(-ENOENT, "is a pipeline of diffusers");
	cr_assert(strstr(error.detail, "unet"), "%s", error.detail);
}

/* ---- a folder that is none of a model ------------------------------------- */

static void refuse_with_remedy(const char *path, const char *says, const char *remedy)
{
	int r = open_path(path);

	cr_assert_eq(r, -ENOENT, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
	cr_assert(strstr(error.detail, remedy), "\"%s\" does not say \"%s\"", error.detail, remedy);
}

static void make_repository(void)
{
	mkdir(in_folder("blobs"), 0755);
	mkdir(in_folder("refs"), 0755);
	mkdir(in_folder("snapshots"), 0755);
	mkdir(in_folder("snapshots/0123abc"), 0755);
	write_file("snapshots/0123abc/model.safetensors", "x");
	write_text("refs/main", "0123abc\n");
}

Test(folder, names_the_snapshot_of_a_hub_repositorys_main)
{
	make_repository();
	mkdir(in_folder("snapshots/old"), 0755);
	refuse_with_remedy(folder, "is the folder of a hub repository",
			   "snapshots/0123abc is what refs/main names");
}

/* refs/main may be a link, or name what is no snapshot: the error then lists what is there. */
Test(folder, lists_the_snapshots_of_a_hub_repository_without_main)
{
	make_repository();
	mkdir(in_folder("snapshots/fedc"), 0755);
	write_text("refs/main", "../../secret");
	refuse_with_remedy(folder, "is the folder of a hub repository", "below snapshots: 0123abc, fedc");
	unlink(in_folder("refs/main"));
	symlink("../snapshots/0123abc/model.safetensors", in_folder("refs/main"));
	refuse_with_remedy(folder, "is the folder of a hub repository", "below snapshots: 0123abc, fedc");
}

Test(folder, says_that_a_hub_repository_has_no_snapshot)
{
	mkdir(in_folder("snapshots"), 0755);
	refuse_with_remedy(folder, "is the folder of a hub repository", "it has no snapshot");
}

Test(folder, names_the_folders_in_a_folder_of_snapshots)
{
	make_repository();
	refuse_with_remedy(in_folder("snapshots"), "but folders: 0123abc", "name one of these snapshots");
	refuse_with_remedy(in_folder("snapshots/"), "but folders: 0123abc", "name one of these snapshots");
}

Test(folder, names_the_first_of_the_folders_in_a_folder)
{
	for (const char *name = "fbdace"; *name; name++)
		mkdir(in_folder((char[]){*name, 0}), 0755);
	mkdir(in_folder(".hidden"), 0755);
	refuse_with_remedy(folder, "but folders: a, b, c, d, and 2 more",
			   "name the folder that has the model's files");
}

Test(folder, says_that_a_link_in_it_leads_to_nothing)
{
	symlink("../../blobs/cafe", in_folder("model.safetensors"));
	refuse(-EACCES, "leads out of the root");
	unlink(in_folder("model.safetensors"));
	symlink("blobs/cafe", in_folder("model.safetensors"));
	refuse(-EBADMSG, "model.safetensors is a link to a file that is missing");
	unlink(in_folder("model.safetensors"));
	write_file("model.safetensors", "x");
	symlink("blobs/cafe", in_folder("config.json"));
	loads("x");
	cr_assert(strstr(source.left[0], "config.json (No such file or directory)"), "%s", source.left[0]);
}

Test(folder, names_other_formats)
{
	write_text("pytorch_model.bin", "x");
	refuse(-ENOTSUP, "pytorch_model.bin, which is named as a PyTorch file");
	unlink(in_folder("pytorch_model.bin"));
	write_text("q4.gguf", "x");
	refuse(-ENOTSUP, "q4.gguf, which is named as a GGUF file");
	unlink(in_folder("q4.gguf"));
	write_text("model.onnx", "x");
	refuse(-ENOTSUP, "model.onnx, which is named as an ONNX model");
}

/* ---- what a file is ------------------------------------------------------ */

#define ZIP(name)                                                                                              \
	"PK\3\4\24\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\20\0\0\0" name "and what comes behind the name"
#define LFS                                                                                                    \
	"version https://git-lfs.github.com/spec/v1\noid sha256:"                                              \
	"4d7a214614ab2935c943f9e0ff69d22eadbb8f32b1258daaa5e2ca24d17e2393\nsize 12345\n"

Test(folder, names_formats_that_it_does_not_read)
{
	static const struct {
		const char *bytes;
		size_t length;
		const char *says, *remedy;
	} cases[] = {
#define CASE(bytes, says, remedy) {bytes, sizeof(bytes) - 1, says, remedy}
		CASE("GGUF\3\0\0\0\1\0\0\0\0\0\0\0", "is a GGUF file", "convert"),
		CASE("\200\2}q\1X\1\0\0\0aq\2K\1s", "is a pickle", "convert"),
		CASE(ZIP("archive/data.pkl"), "is a PyTorch (zip) file", "convert"),
		CASE(ZIP("assets/model.txt"), "is a zip archive", "unpack"),
		CASE(ZIP("layer.weight.npy"), "is a NumPy archive", "convert"),
		CASE("PK\3\4", "is a zip archive", "unpack"),
		CASE("\x93NUMPY\1\0v\0{'descr': '<f4'", "is a NumPy file", "convert"),
		CASE("\x89HDF\r\n\x1a\n\0\0\0\0\0\x08\x08\0", "is an HDF5 file", "convert"),
		CASE("\x08\x08\x12\x07pytorch\x1a\x05"
		     "2.1.0",
		     "is an ONNX model", "convert"),
		CASE("\x1c\0\0\0TFL3\0\0\0\0\0\0\0\0", "is a TensorFlow Lite file", "convert"),
		CASE("\x1f\x8b\x08\0\0\0\0\0\0\3\0\0", "is compressed by gzip", "unpack"),
		CASE(LFS, "is a Git LFS pointer", "git lfs pull"),
		CASE("<!DOCTYPE html>\n<html lang=\"en\">", "is an HTML page", "download it again"),
		CASE("\n <HTML><head><title>502", "is an HTML page", "download it again"),
		CASE("<?xml version=\"1.0\"?><Error><Code>AccessDenied", "is an XML text", "download it again"),
		CASE("{\n  \"metadata\": {\"total_size\": 1}}", "is a JSON text", "folder"),
		CASE("{\"meta\":{\"a\":1}}", "is a JSON text", "folder"),
		CASE("It is not known what this is.", "no header begins at byte 8", "supported"),
#undef CASE
	};
	const char *path = in_folder("weights");

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		write_bytes(path, cases[i].bytes, cases[i].length);
		cr_assert_eq(open_path(path), -ENOTSUP, "%s: %s", cases[i].says, error.message);
		cr_expect(strstr(error.message, cases[i].says), "%s: %s", cases[i].says, error.message);
		cr_expect(strstr(error.detail, cases[i].remedy), "%s: %s", cases[i].says, error.detail);
	}
}

/* A format that the loader reads is named where messages list what it reads, and is no foreign one. */
Test(folder, messages_name_every_format)
{
	char name[64];

	for (size_t i = 0; formats[i]; i++) {
		cr_expect(strstr(FORMAT_NAMES, formats[i]->name), "FORMAT_NAMES lacks %s", formats[i]->name);
		snprintf(name, sizeof(name), "model%s", formats[i]->file_end);
		cr_expect_null(foreign_name(name), "foreign.c has %s", name);
	}
}

Test(folder, knows_a_tar_archive_by_its_middle)
{
	char tar[600] = "data.pkl";

	memcpy(tar + 257, "ustar", 5);
	write_bytes(in_folder("weights"), tar, sizeof(tar));
	cr_assert_eq(open_path(in_folder("weights")), -ENOTSUP);
	cr_assert(strstr(error.message, "is a tar archive"), "%s", error.message);
}

Test(folder, goes_by_the_name_of_what_it_does_not_know)
{
	write_text("x.gguf", "nothing that is known");
	cr_assert_eq(open_path(in_folder("x.gguf")), -ENOTSUP);
	cr_assert(strstr(error.message, "named as a GGUF file"), "%s", error.message);
	write_file("model.bin", "a");
	cr_assert_eq(open_path(in_folder("model.bin")), 0, "the bytes count before the name: %s",
		     error.message);
}
