/* The files of a checkpoint's folder that travel with the version, and the notes of those that don't. */
#include "loader/files/extras.h"
#include "tests/support/loader/opened.h"

#include "base/clock.h"
#include "base/utf8.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/un.h>

#define MODEL "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]}}"

static void setup(void)
{
	source_setup();
	write_safetensors(in_folder("model.safetensors"), MODEL, 4);
}

TestSuite(extras, .init = setup, .fini = source_teardown, .timeout = 120);

static void make_folder(const char *name)
{
	cr_assert_eq(mkdir(in_folder("%s", name), 0755), 0, "%s", name);
}

static void write_text(const char *name, const char *text)
{
	write_bytes(in_folder("%s", name), text, strlen(text));
}

static void make_link(const char *to, const char *name)
{
	cr_assert_eq(symlink(to, in_folder("%s", name)), 0, "%s", name);
}

/* Opens a folder beneath the root, with its files. Neither of them ever fails because of these files. */
static void open_beneath(const char *root, const char *path)
{
	char *paths[] = {(char *)root};
	const struct roots roots = {.paths = paths, .count = 1};

	memset(&error, 0, sizeof(error));
	cr_assert_eq(source_open(path, &(struct load_choice){0}, &roots, &source, &error), 0, "%s",
		     error.message);
	cr_assert_eq(source_read_extras(&source, &roots, &error), 0, "%s", error.message);
}

static void open_folder(void)
{
	open_beneath(folder, folder);
}

static const struct source_extra *extra(const char *name)
{
	for (size_t i = 0; i < source.extra_count; i++)
		if (strcmp(source.extras[i].name, name) == 0)
			return &source.extras[i];
	return NULL;
}

static void travels(const char *name, const char *text)
{
	const struct source_extra *found = extra(name);

	cr_assert(found, "%s does not travel: %s", name, source.left[0]);
	cr_assert_eq(found->bytes, strlen(text), "%s", name);
	cr_assert_arr_eq(found->data, text, strlen(text), "%s", name);
}

/* A note has these words, which are a reason, or a name with what is said of it. */
static void left(const char *words)
{
	for (size_t i = 0; i < SOURCE_LEFT_MAX; i++)
		if (strstr(source.left[i], words))
			return;
	cr_assert_fail("no note says \"%s\"; the first is \"%s\"", words, source.left[0]);
}

static void nothing_is_left(void)
{
	cr_assert_str_eq(source.left[0], "");
}

/* ---- what travels -------------------------------------------------------- */

Test(extras, take_all_files_that_are_no_weights)
{
	write_text("config.json", "{\"a\":1}");
	write_text("merges.txt", "");
	write_text("README.md", "# tiny");
	write_text("modeling_tiny.py", "raise SystemExit(1)");
	write_text("qwen.tiktoken", "IQ== 0");
	open_folder();
	cr_assert_eq(source.extra_count, 5);
	cr_assert_str_eq(source.extras[0].name, "config.json", "known ones come first");
	travels("config.json", "{\"a\":1}");
	travels("merges.txt", "");
	travels("README.md", "# tiny");
	travels("modeling_tiny.py", "raise SystemExit(1)");
	travels("qwen.tiktoken", "IQ== 0");
	nothing_is_left();
}

/* oobabooga/textgen#1658: a copy of all-MiniLM-L6-v2 without 1_Pooling/config.json can't be opened. */
Test(extras, take_subfolders)
{
	make_folder("1_Pooling");
	make_folder("a");
	make_folder("a/b");
	write_text("1_Pooling/config.json", "{}");
	write_text("a/b/template.jinja", "hi");
	open_folder();
	cr_assert_eq(source.extra_count, 2);
	travels("1_Pooling/config.json", "{}");
	travels("a/b/template.jinja", "hi");
	nothing_is_left();
}

Test(extras, do_not_repeat_the_index_and_its_shards)
{
	cr_assert_eq(rename(in_folder("model.safetensors"), in_folder("s.safetensors")), 0);
	write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"s.safetensors\"}}");
	open_folder();
	cr_assert_eq(source.extra_count, 0);
	nothing_is_left();
}

/* A file's neighbours are not the model's. */
Test(extras, are_none_of_a_single_file)
{
	write_text("config.json", "{}");
	open_beneath(folder, in_folder("model.safetensors"));
	cr_assert_eq(source.extra_count, 0);
	nothing_is_left();
}

/* ---- the limits ---------------------------------------------------------- */

static void make_large(const char *name, uint64_t bytes)
{
	write_text(name, "{");
	cr_assert_eq(truncate(in_folder("%s", name), (off_t)bytes), 0);
}

Test(extras, fill_the_limit_to_the_last_byte)
{
	write_text("config.json", "x");
	make_large("tokenizer.json", INDEX_FILES_BYTES_MAX - 1);
	open_folder();
	cr_assert_eq(source.extra_count, 2);
	nothing_is_left();
	source_close(&source);
	make_large("tokenizer.json", INDEX_FILES_BYTES_MAX);
	write_text("small.txt", "y");
	open_folder();
	cr_assert_eq(source.extra_count, 2);
	travels("small.txt", "y");
	left("above the 32 MiB that the files of a version have in all: tokenizer.json (33554432 bytes)");
}

Test(extras, take_known_files_first_and_then_small_ones)
{
	make_large("a.txt", INDEX_FILES_BYTES_MAX / 2);
	make_large("b.txt", INDEX_FILES_BYTES_MAX / 2 - 2);
	make_large("tokenizer.json", INDEX_FILES_BYTES_MAX / 2);
	write_text("c.txt", "z");
	open_folder();
	cr_assert_eq(source.extra_count, 3);
	cr_assert_str_eq(source.extras[0].name, "tokenizer.json");
	cr_assert_str_eq(source.extras[1].name, "c.txt");
	cr_assert_str_eq(source.extras[2].name, "b.txt");
	left("a.txt (16777216 bytes)");
}

static void write_many(unsigned count)
{
	int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char name[32];

	for (unsigned i = 0; i < count; i++) {
		int file;

		snprintf(name, sizeof(name), "%06u.txt", i);
		file = openat(fd, name, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
		cr_assert(file >= 0);
		close(file);
	}
	close(fd);
}

Test(extras, are_limited_in_number)
{
	write_text("tokenizer.json", "{}");
	write_many(EXTRA_FILES_MAX);
	open_folder();
	cr_assert_eq(source.extra_count, EXTRA_FILES_MAX);
	travels("tokenizer.json", "{}");
	left("more than 1024 files: 001023.txt (0 bytes)");
}

Test(extras, of_a_folder_with_100000_files_are_told_soon)
{
	const uint64_t begun = clock_steady_ms();
	uint64_t took;

	write_many(100000);
	took = clock_steady_ms() - begun;
	write_text("config.json", "{}");
	open_folder();
	cr_assert_eq(source.extra_count, EXTRA_FILES_MAX);
	travels("config.json", "{}");
	left("more than 1024 files: ");
	left("the rest of a folder with more than 65536 entries: ./");
	cr_assert_lt(clock_steady_ms() - begun - took, 10 * took + 10000,
		     "it takes no longer than to make them");
}

Test(extras, of_deep_folders_are_told)
{
	char name[128] = "d";

	for (unsigned i = 0; i < 12; i++) {
		make_folder(name);
		strcat(name, "/d");
	}
	strcpy(strrchr(name, '/'), "/deep.txt");
	write_text(name, "?");
	write_text("d/d/d/d/d/d/d/d/last.txt", "!");
	open_folder();
	cr_assert_eq(source.extra_count, 1);
	travels("d/d/d/d/d/d/d/d/last.txt", "!");
	left("more than 8 folders deep: d/d/d/d/d/d/d/d/d");
}

/* ---- what is left out ---------------------------------------------------- */

/* vllm-project/vllm#40765: Ministral's folder has its weights twice, in two formats. */
Test(extras, leave_out_weights_that_the_version_does_not_have)
{
	make_folder("2_Dense");
	write_safetensors(in_folder("2_Dense/model.safetensors"), MODEL, 4);
	write_text("2_Dense/config.json", "{}");
	write_text("2_Dense/model.safetensors.index.json", "{}");
	write_safetensors(in_folder("consolidated.safetensors"), MODEL, 4);
	write_safetensors(in_folder("named.dat"), MODEL, 4);
	open_folder();
	cr_assert_eq(source.extra_count, 1);
	travels("2_Dense/config.json", "{}");
	left("weights that this version does not have (load them as a version of their own): ");
	left("2_Dense/model.safetensors (");
	left("2_Dense/model.safetensors.index.json (2 bytes)");
	left("consolidated.safetensors (");
	left("named.dat (");
}

Test(extras, leave_out_pickles_and_other_formats_by_name_and_by_content)
{
	write_text("pytorch_model.bin", "x");
	write_text("pytorch_model.bin.index.json", "{}");
	write_text("training_args.bin", "y");
	write_text("vocab.pkl.gz", "\x1f\x8b");
	write_text("bpe.txt.gz", "\x1f\x8b");
	write_text("hidden.json", "\x80\x02}.");
	write_text("model.txt", "PK\003\004");
	write_text("model.md", "GGUF");
	make_folder("onnx");
	write_text("onnx/model.onnx", "z");
	open_folder();
	cr_assert_eq(source.extra_count, 1);
	travels("bpe.txt.gz", "\x1f\x8b");
	left("pickles, archives and weights of other formats: ");
	left("pytorch_model.bin (1 bytes, named as a PyTorch file)");
	left("pytorch_model.bin.index.json (2 bytes)");
	left("training_args.bin (1 bytes");
	left("vocab.pkl.gz (2 bytes, named as a pickle)");
	left("hidden.json (4 bytes, a pickle)");
	left("model.txt (4 bytes, a zip archive)");
	left("model.md (4 bytes, a GGUF file)");
	left("onnx/model.onnx (1 bytes, named as an ONNX model)");
}

/* ThilinaRajapakse/simpletransformers#873: tokenizer.model is what an old git left in its place. */
Test(extras, leave_out_pointers_of_git_lfs)
{
	write_text("tokenizer.model", "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n");
	open_folder();
	cr_assert_eq(source.extra_count, 0);
	left("Git LFS pointers (`git lfs pull` fetches the files that they stand for): tokenizer.model (");
}

Test(extras, leave_out_hidden_files_and_folders)
{
	write_text(".gitattributes", "*");
	make_folder(".git");
	write_text(".git/config", "secret");
	make_folder("a");
	write_text("a/.env", "secret");
	open_folder();
	cr_assert_eq(source.extra_count, 0);
	left("left out, hidden: ");
	left(".gitattributes (1 bytes)");
	left(".git (a folder)");
	left("a/.env (6 bytes)");
}

Test(extras, leave_out_what_is_neither_file_nor_folder)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	cr_assert_eq(mkfifo(in_folder("config.json"), 0644), 0);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", in_folder("socket.json"));
	cr_assert_eq(bind(sock, (struct sockaddr *)&address, sizeof(address)), 0);
	make_link("config.json", "link.json");
	open_folder();
	close(sock);
	cr_assert_eq(source.extra_count, 0);
	left("neither files nor folders: config.json, ");
	left("socket.json");
	left("link.json");
}

Test(extras, follow_links_within_the_folder_only)
{
	make_folder("model");
	make_folder("model/sub");
	write_text("secret", "outside");
	cr_assert_eq(rename(in_folder("model.safetensors"), in_folder("model/model.safetensors")), 0);
	write_text("model/real.json", "{}");
	make_link("real.json", "model/config.json");
	make_link("../real.json", "model/sub/up.json");
	make_link("../secret", "model/vocab.txt");
	make_link("../../secret", "model/sub/vocab.txt");
	make_link(in_folder("secret"), "model/absolute.txt");
	make_link("/proc/self/environ", "model/environ.txt");
	make_link("/dev/zero", "model/zero.txt");
	make_link("nowhere", "model/tokenizer.json");
	make_link("round.txt", "model/round.txt");
	make_link(".", "model/itself");
	make_link("..", "model/parent");
	make_link("model.safetensors", "model/other.safetensors");
	open_beneath(folder, in_folder("model"));
	cr_assert_eq(source.extra_count, 3);
	travels("real.json", "{}");
	travels("config.json", "{}");
	travels("sub/up.json", "{}");
	left("links out of the folder, to a folder or to nothing: ");
	for (size_t i = 0; i < source.extra_count; i++)
		cr_assert_eq(source.extras[i].bytes, 2, "nothing from outside");
	for (const char *const *name =
		     (const char *const[]){"vocab.txt", "sub/vocab.txt", "absolute.txt", "environ.txt",
					   "zero.txt", "tokenizer.json (No such file",
					   "round.txt (Too many levels", "itself", "parent", NULL};
	     *name; name++)
		left(*name);
	left("does not have (load them as a version of their own): other.safetensors (");
}

Test(extras, leave_out_names_that_nobody_can_show)
{
	char longest[256];
	unsigned depth;

	write_text("new\nline.txt", "1");
	write_text("esc\033[2J.txt", "2");
	write_text("\xff\xfe.txt", "3");
	write_text("\u202Egpj.exe", "4");
	write_text("caf\u00e9 au lait.txt", "5");
	memset(longest, 'n', 255);
	longest[255] = '\0';
	for (depth = 1; depth <= 4; depth++) {
		char name[2048] = "";

		for (unsigned i = 0; i < depth; i++)
			strcat(strcat(name, i ? "/" : ""), longest);
		make_folder(name);
		write_text(strcat(name, "/f"), "6");
	}
	open_folder();
	travels("caf\u00e9 au lait.txt", "5");
	cr_assert_eq(source.extra_count, 4, "three names of up to 1,024 bytes beside it");
	left("names that are not UTF-8, have control characters, or more than 1024 bytes: ");
	for (size_t i = 0; i < SOURCE_LEFT_MAX; i++)
		cr_assert(utf8_valid(source.left[i]) && !strchr(source.left[i], '\n') &&
				  !strchr(source.left[i], '\033'),
			  "%s", source.left[i]);
}

Test(extras, leave_out_what_cannot_be_read)
{
	if (geteuid() == 0)
		cr_skip_test("root reads everything");
	write_text("config.json", "{}");
	make_folder("private");
	cr_assert_eq(chmod(in_folder("config.json"), 0), 0);
	cr_assert_eq(chmod(in_folder("private"), 0), 0);
	open_folder();
	chmod(in_folder("private"), 0700);
	cr_assert_eq(source.extra_count, 0);
	left("could not be read: ");
	left("config.json (2 bytes, Permission denied)");
	left("private/ (Permission denied)");
}

/* One note has the first names, and how many more there are. */
Test(extras, of_one_reason_are_counted)
{
	char name[64];

	for (unsigned i = 0; i < 200; i++) {
		snprintf(name, sizeof(name), "a-rather-long-name-of-a-pickle-%03u.pkl", i);
		write_text(name, "12345");
	}
	open_folder();
	left(" more, 1000 bytes in all");
	cr_assert_lt(strlen(source.left[0]), TEXT_BYTES_MAX);
	cr_assert_str_eq(source.left[1], "");
}

/* ---- the hub's cache ----------------------------------------------------- */

#define REPOSITORY "models--acme--tiny"
#define SNAPSHOT REPOSITORY "/snapshots/0123abc"

static void make_repository(void)
{
	make_folder(REPOSITORY);
	make_folder(REPOSITORY "/blobs");
	make_folder(REPOSITORY "/snapshots");
	make_folder(SNAPSHOT);
	make_folder(SNAPSHOT "/1_Pooling");
	cr_assert_eq(rename(in_folder("model.safetensors"), in_folder(REPOSITORY "/blobs/aaaa")), 0);
	make_link("../../blobs/aaaa", SNAPSHOT "/model.safetensors");
	write_text(REPOSITORY "/blobs/bbbb", "{\"b\":1}");
	write_text(REPOSITORY "/blobs/cccc", "{\"c\":1}");
}

Test(extras, of_a_snapshot_come_from_its_repositorys_blobs)
{
	make_repository();
	make_link("../../blobs/bbbb", SNAPSHOT "/config.json");
	make_link("../../../blobs/cccc", SNAPSHOT "/1_Pooling/config.json");
	open_beneath(folder, in_folder(SNAPSHOT));
	cr_assert_eq(source.extra_count, 2);
	travels("config.json", "{\"b\":1}");
	travels("1_Pooling/config.json", "{\"c\":1}");
	nothing_is_left();
}

Test(extras, of_a_snapshot_come_from_nowhere_else)
{
	make_repository();
	make_folder("models--acme--other");
	make_folder("models--acme--other/blobs");
	write_text("models--acme--other/blobs/dddd", "secret");
	make_folder(REPOSITORY "/blobs/sub");
	write_text(REPOSITORY "/blobs/sub/dddd", "secret");
	write_text(REPOSITORY "/other", "secret");
	make_link("../../models--acme--other/blobs/dddd", REPOSITORY "/blobs/eeee");
	make_link("../../../models--acme--other/blobs/dddd", SNAPSHOT "/1.json");
	make_link("../../blobs/sub/dddd", SNAPSHOT "/2.json");
	make_link("../../blobs/../other", SNAPSHOT "/3.json");
	make_link("../../other", SNAPSHOT "/4.json");
	make_link("../../blobs/eeee", SNAPSHOT "/5.json");
	make_link("../../blobs", SNAPSHOT "/6.json");
	make_link("../../blobs/", SNAPSHOT "/7.json");
	make_link("../../blobs/bbbb", SNAPSHOT "/1_Pooling/8.json");
	make_link(in_folder(REPOSITORY "/blobs/bbbb"), SNAPSHOT "/9.json");
	open_beneath(folder, in_folder(SNAPSHOT));
	cr_assert_eq(source.extra_count, 0);
	for (char number[] = "1.json"; number[0] <= '7'; number[0]++)
		left(number);
	left("1_Pooling/8.json");
	left("9.json");
}

/* huggingface/huggingface_hub#1388: a cache with a relative path, whose links led nowhere. */
Test(extras, of_a_snapshot_with_broken_links_are_told)
{
	make_repository();
	make_link("tmp/cache/" REPOSITORY "/blobs/bbbb", SNAPSHOT "/config.json");
	make_link("../../blobs/ffff", SNAPSHOT "/tokenizer.json");
	open_beneath(folder, in_folder(SNAPSHOT));
	cr_assert_eq(source.extra_count, 0);
	left("config.json (No such file or directory)");
	left("tokenizer.json (No such file or directory)");
}

/* Elsewhere "../../blobs" is a folder as any other. */
Test(extras, take_no_blobs_where_there_is_no_snapshot)
{
	make_folder("other");
	make_folder("other/model");
	make_folder("blobs");
	write_text("blobs/bbbb", "secret");
	cr_assert_eq(rename(in_folder("model.safetensors"), in_folder("other/model/model.safetensors")), 0);
	make_link("../../blobs/bbbb", "other/model/config.json");
	open_beneath(folder, in_folder("other/model"));
	cr_assert_eq(source.extra_count, 0);
	left("links out of the folder, to a folder or to nothing: config.json");
}

/* ---- while others write -------------------------------------------------- */

Test(extras, that_were_exchanged_since_they_were_found_are_what_they_are_now)
{
	char *paths[] = {folder};
	const struct roots roots = {.paths = paths, .count = 1};
	struct extras found = {.roots = &roots, .source = &source, .blobs = -1, .error = &error};
	int fd;

	cr_assert_eq(source_open(folder, &(struct load_choice){0}, &roots, &source, &error), 0);
	found.folder = source.folder.fd;
	make_folder("sub");
	write_text("sub/config.json", "{}");
	cr_assert_eq(rename(in_folder("sub"), in_folder("was")), 0);
	make_link("..", "sub");
	cr_assert_eq(extras_open(&found, "sub/config.json", O_RDONLY), -EXDEV);
	fd = extras_open(&found, "was/config.json", O_RDONLY | O_CLOEXEC);
	cr_assert_geq(fd, 0);
	close(fd);
}

/* Another process, of which a test needs the effects only. */
struct disturber {
	pthread_t thread;
	atomic_bool ends;
};

static void disturb(struct disturber *disturber, void *(*run)(void *))
{
	cr_assert_eq(pthread_create(&disturber->thread, NULL, run, disturber), 0);
}

static void disturb_no_more(struct disturber *disturber)
{
	disturber->ends = true;
	pthread_join(disturber->thread, NULL);
}

/* As a program that opens its log for each line. */
static void *grow(void *data)
{
	struct disturber *disturber = data;
	char path[PATH_MAX];

	snprintf(path, sizeof(path), "%s", in_folder("log.txt"));
	while (!disturber->ends) {
		int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);

		if (write(fd, "x", 1) != 1)
			disturber->ends = true;
		close(fd);
	}
	return NULL;
}

static bool log_is_left_out(const char *why)
{
	return strstr(source.left[0], "could not be read: log.txt (") && strstr(source.left[0], why);
}

Test(extras, that_are_written_meanwhile_are_told)
{
	struct disturber disturber = {0};
	bool told = false;

	write_text("config.json", "{}");
	make_large("log.txt", INDEX_FILES_BYTES_MAX / 2);
	disturb(&disturber, grow);
	while (!told) {
		open_folder();
		travels("config.json", "{}");
		told = log_is_left_out(", it was written meanwhile)");
		/* Or the file was open for writing as the loader came to it. */
		cr_assert(told || extra("log.txt") || log_is_left_out(", somebody has it open for writing)"),
			  "%s", source.left[0]);
		source_close(&source);
	}
	disturb_no_more(&disturber);
}

/* Puts a file, a FIFO, a folder and links out of the folder in each other's place. */
static void *exchange(void *data)
{
	static const char *const names[] = {"file", "fifo", "folder", "link", "up"};
	struct disturber *disturber = data;
	char place[PATH_MAX], from[PATH_MAX];

	snprintf(place, sizeof(place), "%s/model/vocab.txt", folder);
	for (unsigned i = 0; !disturber->ends; i++) {
		snprintf(from, sizeof(from), "%s/%s", folder, names[i % 5]);
		if (rename(from, place) == 0 && rename(place, from) != 0)
			break;
	}
	return NULL;
}

Test(extras, that_are_exchanged_all_the_time_never_come_from_outside)
{
	struct disturber disturber = {0};
	const uint64_t begun = clock_steady_ms();

	make_folder("model");
	cr_assert_eq(rename(in_folder("model.safetensors"), in_folder("model/model.safetensors")), 0);
	write_text("secret", "secret");
	write_text("file", "inside");
	cr_assert_eq(mkfifo(in_folder("fifo"), 0644), 0);
	make_folder("folder");
	make_link("../secret", "link");
	make_link("..", "up");
	disturb(&disturber, exchange);
	while (clock_steady_ms() - begun < 500) {
		open_beneath(folder, in_folder("model"));
		cr_assert_leq(source.extra_count, 1);
		if (source.extra_count == 1)
			travels("vocab.txt", "inside");
		source_close(&source);
	}
	disturb_no_more(&disturber);
}
