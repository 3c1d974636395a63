#include "../../loader/cut/cut.h"
#include "../../loader/files/folder.h"
#include "tests/support/fail_alloc.h"
#include "tests/support/loader/opened.h"

#include <errno.h>
#include <fcntl.h>

#define U8(name, bytes, from, to)                                                                              \
	"\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #bytes "],\"data_offsets\":[" #from "," #to "]}"
#define ONE(name) "{" U8(name, 4, 0, 4) "}"

TestSuite(source, .init = source_setup, .fini = source_teardown);

/* Opens beneath one root: the test's folder, or a folder in it. */
static int open_beneath(const char *root, const char *path)
{
	char *paths[] = {(char *)root};
	const struct roots roots = {.paths = paths, .count = 1};
	int r;

	memset(&error, 0, sizeof(error));
	r = source_open(path, &(struct load_choice){0}, &roots, &source, &error);
	return r < 0 ? r : source_read_extras(&source, &roots, &error);
}

static int open_path(const char *path)
{
	return open_beneath(folder, path);
}

static void refuse(int code, const char *says)
{
	int r = open_path(folder);

	cr_assert_eq(r, code, "%d: %s", r, error.message);
	cr_assert(strstr(error.message, says), "\"%s\" does not say \"%s\"", error.message, says);
}

static void write_text(const char *path, const char *text)
{
	write_bytes(path, text, strlen(text));
}

static void write_index(const char *text)
{
	write_text(in_folder("model.safetensors.index.json"), text);
}

/* Two shards, a and b in the first, c in the second. */
static void write_shards(void)
{
	write_safetensors(in_folder("s1.safetensors"), "{" U8("a", 4, 0, 4) "," U8("b", 4, 4, 8) "}", 8);
	write_safetensors(in_folder("s2.safetensors"), ONE("c"), 4);
	write_index("{\"metadata\":{\"total_size\":12},\"weight_map\":{\"c\":\"s2.safetensors\","
		    "\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}");
}

Test(source, opens_a_single_file)
{
	const char *path = in_folder("any-name.safetensors");

	write_safetensors(path, ONE("a"), 4);
	write_text(in_folder("config.json"), "{}");
	cr_assert_eq(open_path(path), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 1);
	cr_assert_str_eq(source.tensors[0].name, "a");
	cr_assert_eq(source.bytes, 4);
	cr_assert_eq(source.extra_count, 0, "a file's neighbours are not the model's");
}

Test(source, opens_shards_in_the_order_of_their_names)
{
	write_shards();
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert_eq(source.file_count, 2);
	cr_assert_eq(source.tensor_count, 3);
	cr_assert_str_eq(source.tensors[2].name, "c");
	cr_assert_eq(source.tensors[2].file, 1);
	cr_assert_eq(source.bytes, 12);
	cr_assert_str_eq(source.notes[0], "");
}

Test(source, opens_a_snapshot_of_the_hugging_face_cache)
{
	mkdir(in_folder("models--x"), 0755);
	mkdir(in_folder("models--x/blobs"), 0755);
	mkdir(in_folder("models--x/snapshots"), 0755);
	mkdir(in_folder("models--x/snapshots/1"), 0755);
	write_safetensors(in_folder("models--x/blobs/cafe"), ONE("a"), 4);
	write_text(in_folder("models--x/blobs/beef"), "{}");
	cr_assert_eq(symlink("../../blobs/cafe", in_folder("models--x/snapshots/1/model.safetensors")), 0);
	cr_assert_eq(symlink("../../blobs/beef", in_folder("models--x/snapshots/1/config.json")), 0);
	cr_assert_eq(open_path(in_folder("models--x/snapshots/1")), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 1);
	cr_assert_eq(source.extra_count, 1);
}

Test(source, refuses_links_out_of_the_root)
{
	mkdir(in_folder("root"), 0755);
	write_safetensors(in_folder("outside.safetensors"), ONE("a"), 4);
	cr_assert_eq(symlink("../outside.safetensors", in_folder("root/a.safetensors")), 0);
	cr_assert_eq(open_beneath(in_folder("root"), in_folder("root/a.safetensors")), -EACCES);
	cr_assert(strstr(error.message, "leads out of the root"), "%s", error.message);
	cr_assert(strstr(error.detail, in_folder("root")), "%s names the roots", error.detail);
}

Test(source, refuses_absolute_links)
{
	write_safetensors(in_folder("a.safetensors"), ONE("a"), 4);
	cr_assert_eq(symlink(in_folder("a.safetensors"), in_folder("link.safetensors")), 0);
	cr_assert_eq(open_path(in_folder("link.safetensors")), -EACCES);
	cr_assert(strstr(error.message, "is absolute"), "%s", error.message);
	cr_assert_eq(symlink("/proc/self/exe", in_folder("model.safetensors")), 0);
	cr_assert_eq(open_path(folder), -EACCES);
}

Test(source, refuses_paths_outside_of_every_root)
{
	write_safetensors(in_folder("a.safetensors"), ONE("a"), 4);
	cr_assert_eq(open_beneath(in_folder("a"), in_folder("a.safetensors")), -EACCES, "no prefix of a name");
	cr_assert(strstr(error.message, "none of the configured roots"), "%s", error.message);
	cr_assert_eq(open_path(in_folder("../../etc/passwd")), -EACCES);
	cr_assert_eq(open_path("a.safetensors"), -EINVAL);
	cr_assert_eq(source_open(folder, &(struct load_choice){0}, &(struct roots){0}, &source, &error),
		     -EACCES);
	cr_assert(strstr(error.detail, "none"), "%s", error.detail);
}

Test(source, tries_the_next_root_that_holds_the_path)
{
	mkdir(in_folder("sub"), 0755);
	write_safetensors(in_folder("a.safetensors"), ONE("a"), 4);
	cr_assert_eq(symlink("../a.safetensors", in_folder("sub/a.safetensors")), 0);
	char *roots[] = {(char *)in_folder("sub"), folder};

	cr_assert_eq(source_open(in_folder("sub/a.safetensors"), &(struct load_choice){0},
				 &(struct roots){.paths = roots, .count = 2}, &source, &error),
		     0, "%s", error.message);
}

Test(source, refuses_missing_things)
{
	cr_assert_eq(open_path(in_folder("nothing")), -ENOENT);
	cr_assert(strstr(error.message, "nothing"), "%s", error.message);
	refuse(-ENOENT, "has no safetensors files");
}

Test(source, refuses_a_missing_shard)
{
	write_shards();
	unlink(in_folder("s2.safetensors"));
	refuse(-ENOENT, "s2.safetensors, which is missing");
}

Test(source, refuses_a_tensor_in_two_shards)
{
	write_shards();
	write_safetensors(in_folder("s2.safetensors"), "{" U8("c", 4, 0, 4) "," U8("a", 4, 4, 8) "}", 8);
	refuse(-EBADMSG, "tensor \"a\" is in two shards");
}

Test(source, refuses_a_tensor_that_its_shard_does_not_hold)
{
	write_shards();
	write_index("{\"weight_map\":{\"a\":\"s1.safetensors\",\"x\":\"s2.safetensors\"}}");
	refuse(-EBADMSG, "tensor \"x\" is not in its shard s2.safetensors");
	write_index("{\"weight_map\":{\"a\":\"s2.safetensors\",\"b\":\"s1.safetensors\"}}");
	refuse(-EBADMSG, "tensor \"a\" is not in its shard s2.safetensors, but in s1.safetensors");
}

Test(source, refuses_shard_names_that_are_paths)
{
	static const char *const names[] = {
		"/etc/passwd", "../s1.safetensors", "sub/s.safetensors", "..", ".", ""};
	char text[256];

	write_shards();
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		snprintf(text, sizeof(text), "{\"weight_map\":{\"a\":\"%s\"}}", names[i]);
		write_index(text);
		refuse(-ENOTSUP, "tensor \"a\" is mapped to the shard");
		cr_assert(strstr(error.message, names[i]));
	}
}

Test(source, says_line_and_reason_of_a_damaged_index)
{
	write_index("{\n \"weight_map\": {\n  \"a\" \"s1.safetensors\"\n }\n}");
	refuse(-EBADMSG, "model.safetensors.index.json: not valid JSON in line 3 (byte 25): expected ':'");
	write_index("{");
	refuse(-EBADMSG, "not valid JSON in line 1 (byte 1): it ends too early");
	write_index("{\"weight_map\":{\"a\":\"s\"}}x");
	refuse(-EBADMSG, "something follows");
	write_index("{\"weight_map\":{\"a\":\"s\"},\n\"metadata\":{\"total_size\":01}}");
	refuse(-EBADMSG, "line 2");
}

Test(source, refuses_indices_that_are_none)
{
	write_index("[]");
	refuse(-EBADMSG, "weight_map is missing");
	write_index("{\"metadata\":{}}");
	refuse(-EBADMSG, "weight_map is missing");
	write_index("{\"weight_map\":[]}");
	refuse(-EBADMSG, "line 1: weight_map is no object");
	write_index("{\"weight_map\":{\"a\":1}}");
	refuse(-EBADMSG, "tensor \"a\" is mapped to something that is no text");
	write_index("{\"weight_map\":{\"a\":\"s\",\"a\":\"s\"}}");
	refuse(-EBADMSG, "duplicate key \"a\"");
	write_index("{\"weight_map\":{},\"weight_map\":{}}");
	refuse(-EBADMSG, "duplicate key \"weight_map\"");
	write_index("{\"weight_map\":{\"a\\u0000\":\"s\"}}");
	refuse(-ENOTSUP, "a zero byte is in the name of tensor \"a\"");
}

Test(source, refuses_an_index_that_names_no_tensor)
{
	write_shards();
	write_index("{\"weight_map\":{}}");
	refuse(-EBADMSG, "weight_map names no tensor");
}

Test(source, names_what_stands_in_place_of_an_index)
{
	write_index("version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n");
	refuse(-ENOTSUP, "is a Git LFS pointer");
	write_index("<!doctype html><title>Sign in</title>");
	refuse(-ENOTSUP, "is an HTML page");
}

Test(source, checks_the_shards_against_the_index_that_named_them)
{
	char *paths[] = {folder};
	struct roots roots = {.paths = paths, .count = 1};
	struct source_file index;
	struct weight_map map;

	write_shards();
	write_index("{\"weight_map\":{\"c\":\"s1.safetensors\"}}");
	cr_assert_eq(source_file_open(&roots, in_folder("model.safetensors.index.json"), &index, &error), 0);
	cr_assert_eq(weight_map_read(&index, &map, &error), 0, "%s", error.message);
	cr_assert_eq(shards_open(&roots, folder, &index, &map, &source, &error), 0, "%s", error.message);
	write_index("{\"weight_map\":{\"a\":\"s1.safetensors\"}}");
	cr_expect_eq(shards_check(&index, &source, &map, &error), -EBADMSG);
	cr_expect(strstr(error.message, "\"c\" is not in its shard s1.safetensors"), "%s", error.message);
	weight_map_clear(&map);
	source_file_close(&index);
}

Test(source, refuses_a_damaged_shard_by_name)
{
	write_shards();
	write_safetensors(in_folder("s2.safetensors"), ONE("c"), 3);
	refuse(-EBADMSG, "s2.safetensors is truncated");
}

Test(source, warns_of_a_wrong_total)
{
	write_shards();
	write_index("{\"metadata\":{\"total_size\":13},\"weight_map\":{\"c\":\"s2.safetensors\","
		    "\"a\":\"s1.safetensors\",\"b\":\"s1.safetensors\"}}");
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert(strstr(source.notes[0], "total_size says 13 bytes, the shards hold 12"), "%s",
		  source.notes[0]);
}

Test(source, warns_of_tensors_that_the_map_leaves_out)
{
	write_shards();
	write_index("{\"weight_map\":{\"c\":\"s2.safetensors\",\"a\":\"s1.safetensors\"}}");
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
	cr_assert_eq(source.tensor_count, 3);
	cr_assert(strstr(source.notes[0], "names 2 tensors, the shards hold 3"), "%s", source.notes[0]);
}

/* 640 is 0x280: such a file begins with the bytes of a pickle. */
Test(source, takes_a_header_that_looks_like_a_pickle)
{
	char header[641];

	snprintf(header, sizeof(header), "%-640s", ONE("a"));
	write_safetensors(in_folder("model.safetensors"), header, 4);
	cr_assert_eq(open_path(folder), 0, "%s", error.message);
}

Test(source, refuses_what_is_no_regular_file, .timeout = 120)
{
	mkfifo(in_folder("fifo"), 0644);
	cr_assert_eq(open_path(in_folder("fifo")), -EINVAL, "without waiting for a writer");
	cr_assert(strstr(error.message, "is a FIFO"), "%s", error.message);
	mkdir(in_folder("model.safetensors"), 0755);
	refuse(-EINVAL, "is no regular file");
	rmdir(in_folder("model.safetensors"));
	mkfifo(in_folder("model.safetensors"), 0644);
	refuse(-EINVAL, "is a FIFO");
}

Test(source, refuses_short_files)
{
	const char *path = in_folder("model.safetensors");

	write_bytes(path, "", 0);
	refuse(-EBADMSG, "is truncated: it has 0 bytes");
	write_bytes(path, "\20\0\0\0\0\0\0", 7);
	refuse(-EBADMSG, "is truncated: it has 7 bytes");
	write_bytes(path, "\20\0\0\0\0\0\0\0", 8);
	refuse(-EBADMSG, "is truncated: it has 8 bytes, its header alone needs 24");
	/* Its first bytes are those of a pickle. */
	write_bytes(path, "\200\2\0\0\0\0\0\0{\"a\"", 12);
	refuse(-EBADMSG, "is truncated: it has 12 bytes, its header alone needs 648");
	/* A download that has its size and not its bytes. */
	write_bytes(path, "\0\0\0\0\0\0\0\0\0\0\0\0", 12);
	refuse(-EBADMSG, "the header length is 0");
	cr_assert(strstr(error.detail, "is the download complete?"), "%s", error.detail);
}

Test(source, sees_a_file_that_changed)
{
	const char *path = in_folder("model.safetensors");

	write_safetensors(path, ONE("a"), 4);
	cr_assert_eq(open_path(folder), 0);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), 0);
	cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), -EIO);
	cr_assert(strstr(error.message, "was written while it was read"), "%s", error.message);
	cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, source.files[0].stat.st_mtim}, 0),
		     0);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), -EIO, "ctime is not to be set back");
	cr_assert(strstr(error.message, "or its times, mode, owner or links were changed"), "%s",
		  error.message);
	source_give_back_leases(&source); /* the truncate would wait for it */
	cr_assert_eq(truncate(path, 10), 0);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), -EIO);
	cr_assert(strstr(error.message, "now 10"), "%s", error.message);
}

Test(source, sees_a_file_that_was_replaced)
{
	const char *path = in_folder("model.safetensors");

	write_safetensors(path, ONE("a"), 4);
	cr_assert_eq(open_path(folder), 0);
	write_safetensors(in_folder("new"), ONE("b"), 4);
	cr_assert_eq(rename(in_folder("new"), path), 0);
	cr_assert_eq(source_file_unchanged(&source.files[0], &error), -EIO);
	cr_assert(strstr(error.message, "was removed or replaced while it was read"), "%s", error.message);
}

Test(source, sees_a_small_file_that_changed)
{
	const char *path = in_folder("config.json");
	char *paths[] = {folder}, *data = NULL;
	struct source_file file;

	write_text(path, "{}");
	cr_assert_eq(source_file_open(&(struct roots){.paths = paths, .count = 1}, path, &file, &error), 0);
	cr_assert_eq(utimensat(AT_FDCWD, path, (struct timespec[2]){{1, 0}, {1, 0}}, 0), 0);
	cr_expect_eq(source_file_read(&file, 100, &data, &error), -EIO);
	cr_expect(strstr(error.message, "config.json was written"), "%s", error.message);
	cr_expect_null(data);
	source_file_close(&file);
}

/* ---- a choice of tensors ---- */

static int open_only(const char *const *globs, uint32_t count)
{
	char *roots[] = {folder};
	const struct load_choice choice = {.only = {globs, count}};

	memset(&error, 0, sizeof(error));
	return source_open(folder, &choice, &(struct roots){.paths = roots, .count = 1}, &source, &error);
}

Test(source, has_only_the_tensors_that_globs_match)
{
	write_shards();
	cr_assert_eq(open_only((const char *const[]){"[bc]", "c"}, 2), 0, "%s", error.message);
	cr_expect_eq(source.tensor_count, 2);
	cr_expect_str_eq(source.tensors[0].name, "b");
	cr_expect_eq(source.tensors[0].offset, source.files[0].content.tensors[1].offset);
	cr_expect_str_eq(source.tensors[1].name, "c");
	cr_expect_eq(source.tensors[1].file, 1);
	cr_expect_eq(source.bytes, 8);
	cr_expect_eq(source.ranks[0].tensor_count, 2);
	cr_expect_eq(source.ranks[0].bytes, 8);
	cr_expect_str_eq(source.notes[0], "2 of 3 tensors, by --only");
}

Test(source, says_which_glob_matches_nothing)
{
	write_shards();
	cr_assert_eq(open_only((const char *const[]){"*", "vision.*"}, 2), -ENOENT);
	cr_expect(strstr(error.message, "none of its 3 tensors matches \"vision.*\""), "%s", error.message);
	cr_expect(strstr(error.detail, "one of the names is \"a\""), "%s", error.detail);
	/* As in Python, a backslash is a byte like others. */
	cr_assert_eq(open_only((const char *const[]){"\\a"}, 1), -ENOENT);
}

Test(source, of_no_tensors_no_glob_matches_one)
{
	write_safetensors(in_folder("model.safetensors"), "{}", 0);
	cr_assert_eq(open_only((const char *const[]){"*"}, 1), -ENOENT);
	cr_expect(strstr(error.message, "none of its 0 tensors matches \"*\""), "%s", error.message);
}

Test(source, chooses_in_each_rank)
{
	write_safetensors(in_folder("model-rank-0-part-0.safetensors"),
			  "{" U8("a", 4, 0, 4) "," U8("b", 4, 4, 8) "}", 8);
	write_safetensors(in_folder("model-rank-1-part-0.safetensors"),
			  "{" U8("b", 4, 0, 4) "," U8("c", 4, 4, 8) "}", 8);
	cr_assert_eq(open_only((const char *const[]){"[bc]"}, 1), 0, "%s", error.message);
	cr_expect_eq(source.world, 2);
	cr_expect(source.ranks[0].tensor == 0 && source.ranks[0].tensor_count == 1 &&
		  source.ranks[0].bytes == 4);
	cr_expect(source.ranks[1].tensor == 1 && source.ranks[1].tensor_count == 2 &&
		  source.ranks[1].bytes == 8);
	cr_expect_str_eq(source.tensors[0].name, "b");
	cr_expect_eq(source.tensors[1].file, 1);
}

/* The plan's rules for what is left out are no mistake. */
Test(source, is_cut_after_the_choice)
{
	struct cut cut;

	write_shards();
	cr_assert_eq(open_only((const char *const[]){"[bc]"}, 1), 0, "%s", error.message);
	cr_assert_eq(cut_make(&source, "a copy\nb split 0\nc copy", 2, &cut, &error), 0, "%s", error.message);
	cr_expect_eq(cut.share_count, 4);
	cr_expect_eq(cut.ranks[1].bytes, 6);
	cut_clear(&cut);
}

Test(source, survives_every_allocation_that_fails)
{
	char *paths[] = {folder};
	const struct roots roots = {.paths = paths, .count = 1};
	unsigned n = 1;
	int r;

	write_shards();
	write_text(in_folder("config.json"), "{}");
	for (;; n++) {
		fail_alloc_arm(n);
		r = source_open(folder, &(struct load_choice){0}, &roots, &source, &error);
		if (r == 0)
			r = source_read_extras(&source, &roots, &error);
		if (!fail_alloc_disarm())
			break;
		/* asprintf does without the one that would shrink its text. */
		cr_assert(r == 0 || r == -ENOMEM, "allocation %u: %d %s", n, r, error.message);
		source_close(&source);
		cr_assert_eq(fd_count(), fds_before, "allocation %u leaves a descriptor", n);
	}
	cr_assert_eq(r, 0, "%s", error.message);
	cr_assert_gt(n, 20);
}
