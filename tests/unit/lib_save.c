/* Versions that are saved as files, on host or a GPU, and saves that fail. */
#include "tests/support/fail_alloc.h"
#include "tests/support/lib/dlpack.h"
#include "base/leftover.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <sys/fsuid.h>
#include <sys/resource.h>
#include <sys/stat.h>

static char folder[64], target[96];

static struct made strided(void)
{
	struct made made = made_default("strided", 1);

	made.strides[0] = 1;
	made.strides[1] = 10;
	return made;
}

static void begin(void)
{
	struct made damaged = made_default("damaged", 3), other = strided();

	strcpy(folder, "/tmp/gpuwm-save-XXXXXX");
	cr_assert(mkdtemp(folder) != NULL);
	snprintf(target, sizeof(target), "%s/out", folder);
	export_start();
	damaged.lies = true;
	made_add(fake, &device, &damaged);
	made_add(fake, &device, &other);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *walk)
{
	(void)st, (void)type, (void)walk;
	return remove(path);
}

static void end(void)
{
	cr_assert(eq(uint, leases(), 0));
	gpuwm_close(client);
	fake_stop(fake);
	nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

TestSuite(save, .init = begin, .fini = end, .timeout = 60);

static int save_with(const char *ref, const struct gpuwm_save_options *options)
{
	struct gpuwm_mapping *mapping = attach_to(ref);
	const struct gpuwm_mapping *const one = mapping;
	int r = gpuwm_save(&one, 1, target, options);

	cr_expect(eq(int, gpuwm_detach(mapping), 0));
	return r;
}

static int save(const char *ref)
{
	return save_with(ref, NULL);
}

static int save_over(const char *ref)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);

	options.overwrite = true;
	return save_with(ref, &options);
}

static const char *in_target(const char *name)
{
	static char path[160];

	snprintf(path, sizeof(path), "%s/%s", target, name);
	return path;
}

static size_t content_of(const char *name, char *ret, size_t size)
{
	FILE *file = fopen(in_target(name), "re");
	size_t bytes = file ? fread(ret, 1, size - 1, file) : 0;

	cr_expect(file != NULL, "%s is missing", name);
	ret[bytes] = '\0';
	if (file)
		fclose(file);
	return bytes;
}

/* The names in the folder, hidden ones too; -1: it is not there. */
static int count_names(void)
{
	DIR *dir = opendir(target);
	int count = 0;

	if (!dir)
		return -1;
	for (const struct dirent *entry; (entry = readdir(dir));)
		count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
	closedir(dir);
	return count;
}

static void expect_failed(int r, int code, const char *says)
{
	cr_expect(eq(int, r, code));
	cr_expect(strstr(gpuwm_error()->message, says) != NULL, "\"%s\" does not say \"%s\"",
		  gpuwm_error()->message, says);
}

Test(save, is_a_file_that_the_format_describes)
{
	static const char header[] = "{\"__metadata__\":{\"format\":\"pt\",\"tag\":\"v1\"},"
				     "\"b\":{\"dtype\":\"F32\",\"shape\":[10,20],\"data_offsets\":[0,800]},"
				     "\"a\":{\"dtype\":\"U8\",\"shape\":[100],\"data_offsets\":[800,900]},"
				     "\"c\":{\"dtype\":\"U8\",\"shape\":[50],\"data_offsets\":[900,950]}}";
	char bytes[2048], config[16];
	uint64_t length;

	cr_assert(eq(int, save("m@v1"), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, count_names(), 2));
	content_of("config.json", config, sizeof(config));
	cr_expect(eq(str, config, "v1"));
	content_of("model.safetensors", bytes, sizeof(bytes));
	memcpy(&length, bytes, 8);
	cr_expect(eq(ulong, length % 8, 0));
	cr_expect(eq(int, memcmp(bytes + 8, header, strlen(header)), 0), "%.300s", bytes + 8);
	cr_expect(eq(int, bytes[8 + length], 1));
	cr_expect(eq(int, bytes[8 + length + 949], 1));
}

Test(save, is_shards_where_it_is_larger)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);
	char text[512];

	options.shard_bytes = 150;
	cr_assert(eq(int, save_with("m@v1", &options), 0), "%s", gpuwm_error()->message);
	content_of("model.safetensors.index.json", text, sizeof(text));
	cr_expect(eq(
		str, text,
		"{\"metadata\":{\"total_size\":950},\"weight_map\":{\"a\":\"model-00001-of-00003.safetensors\","
		"\"b\":\"model-00002-of-00003.safetensors\",\"c\":\"model-00003-of-00003.safetensors\"}}\n"));
	content_of("model-00003-of-00003.safetensors", text, sizeof(text));
	cr_expect(strstr(text + 8, "{\"__metadata__\":{\"format\":\"pt\"},\"c\":") == text + 8, "%s", text + 8);
	cr_expect(eq(int, count_names(), 5));
}

Test(save, writes_strided_tensors_in_rows)
{
	char bytes[2048];

	cr_assert(eq(int, save("m@strided"), 0), "%s", gpuwm_error()->message);
	content_of("model.safetensors", bytes, sizeof(bytes));
	cr_expect(strstr(bytes + 8, "\"b\":{\"dtype\":\"F32\",\"shape\":[10,20],") != NULL, "%s", bytes + 8);
}

/* Gives tensor "b" a dtype, as a publisher that is newer than this library may: nobody here checks an index that gpuwmd has had
 * checked. */
static void set_dtype(struct fake_version *version, uint16_t dtype)
{
	char *data = malloc(version->bytes[0]);
	struct index_view view;
	struct error error;

	cr_assert(eq(i64, pread(version->fds[0], data, version->bytes[0], 0), (int64_t)version->bytes[0]));
	cr_assert(eq(int, index_open_trusted(data, version->bytes[0], &view, &error), 0), "%s", error.message);
	((struct index_tensor *)view.tensors)[index_find(&view, "b")].dtype = dtype;
	close(version->fds[0]);
	cr_assert(eq(int, index_copy(data, version->bytes[0], &version->fds[0], &error), 0), "%s",
		  error.message);
	free(data);
}

Test(save, refuses_and_names_a_dtype_that_files_can_not_have)
{
	struct made blocks = made_default("blocks", 1), newer = made_default("newer", 1);

	blocks.dtype = DTYPE_Q8_0;
	blocks.shape[1] = 64;
	blocks.strides[0] = 64;
	made_add(fake, &device, &blocks);
	set_dtype(made_add(fake, &device, &newer), DTYPE_END);
	expect_failed(save("m@blocks"), -ENOTSUP, "tensor b is Q8_0, which safetensors files can't have");
	expect_failed(save("m@newer"), -ENOTSUP, "tensor b is dtype 33, which safetensors files can't have");
	cr_expect(eq(int, count_names(), -1), "the folder that it made is removed");
}

Test(save, replaces_nothing_unless_it_is_told_to)
{
	char config[16];

	cr_assert(eq(int, save("m@v1"), 0));
	expect_failed(save("m@v2"), -EEXIST, " exists");
	content_of("config.json", config, sizeof(config));
	cr_expect(eq(str, config, "v1"));
	cr_assert(eq(int, save_over("m@v2"), 0), "%s", gpuwm_error()->message);
	content_of("config.json", config, sizeof(config));
	cr_expect(eq(str, config, "v2"));
	cr_expect(eq(int, count_names(), 2));
}

/* What gpuwmd says of another version, by its folder or a file in it. */
static void expect_kept(const char *source, const char *tier, const char *says)
{
	char config[16];

	fake->listed_source = source;
	fake->listed_tier = tier;
	expect_failed(save_over("m@v2"), -EEXIST, says);
	content_of("config.json", config, sizeof(config));
	cr_expect(eq(str, config, "v1"));
	cr_expect(eq(int, count_names(), 2));
}

Test(save, replaces_no_files_of_another_version)
{
	char file[160], link[160];

	cr_assert(eq(int, save("m@v1"), 0));
	snprintf(file, sizeof(file), "%s/model.safetensors", target);
	snprintf(link, sizeof(link), "%s/link", folder);
	cr_assert(eq(int, symlink(target, link), 0));
	expect_kept(target, "files", "are the only copy of m@described");
	expect_kept(link, "files", "are the only copy of m@described");
	expect_kept(file, "host", "m@described comes back from the files in ");
	expect_kept(target, NULL, "m@described comes back from the files in ");
	fake->listed_source = folder;
	cr_expect(eq(int, save_over("m@v2"), 0), "the folder above is another one: %s", gpuwm_error()->message);
}

static void touch(const char *name)
{
	int fd = open(in_target(name), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);

	cr_assert(fd >= 0);
	close(fd);
}

Test(save, a_folder_has_one_model)
{
	cr_assert(eq(int, mkdir(target, 0700), 0));
	touch("other.safetensors");
	expect_failed(save_over("m@v1"), -EEXIST, "has another model: other.safetensors");
	cr_expect(eq(int, count_names(), 1));
}

/* The names of earlier releases had the process's number, which others can guess. */
Test(save, is_not_written_into_what_others_have_made_there)
{
	char guess[96];

	cr_assert(eq(int, mkdir(target, 0700), 0));
	snprintf(guess, sizeof(guess), ".model.safetensors.%d.tmp", (int)getpid());
	cr_assert(eq(int, mkfifo(in_target(guess), 0666), 0));
	cr_assert(eq(int, save("m@v1"), 0), "%s", gpuwm_error()->message);
	cr_expect(eq(int, count_names(), 3));
}

/* Another process that may write into the folder puts its own file in the place of the one that is being written. */
static int replace(uint64_t bytes, uint64_t total, void *data)
{
	bool *done = data;
	DIR *dir = opendir(target);

	(void)bytes, (void)total;
	for (const struct dirent *entry; !*done && (entry = readdir(dir));) {
		char path[sizeof(target) + sizeof(entry->d_name) + 1];
		int fd;

		if (strncmp(entry->d_name, ".model.safetensors.", 19) != 0)
			continue;
		snprintf(path, sizeof(path), "%s/%s", target, entry->d_name);
		*done = unlink(path) == 0;
		fd = open(path, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
		cr_assert(fd >= 0);
		close(fd);
	}
	closedir(dir);
	return 0;
}

/* Who saves says by the umask who may read the weights. */
Test(save, has_the_mode_that_the_umask_lets_it_have)
{
	mode_t before = umask(027);
	char path[128];
	struct stat st;

	cr_assert(eq(int, save("m@v1"), 0), "%s", gpuwm_error()->message);
	umask(before);
	snprintf(path, sizeof(path), "%s/model.safetensors", target);
	cr_assert(eq(int, stat(path, &st), 0));
	cr_expect(eq(uint, st.st_mode & 0777, 0640));
	cr_assert(eq(int, stat(target, &st), 0));
	cr_expect(eq(uint, st.st_mode & 0777, 0750));
}

/* Before it writes anything: of several, only one could give its files their names. */
Test(save, is_refused_while_another_one_writes_there)
{
	char name[NAME_MAX + 1], path[PATH_MAX];

	cr_assert(eq(int, mkdir(target, 0700), 0));
	cr_assert(eq(int, leftover_name("model.safetensors", name), 0));
	snprintf(path, sizeof(path), "%s/%s", target, name);
	close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	expect_failed(save("m@v1"), -EBUSY, "another save writes into ");
	expect_failed(save_over("m@v1"), -EBUSY, name);
	cr_assert(eq(int, unlink(path), 0));
	cr_assert(eq(int, save("m@v1"), 0), "%s", gpuwm_error()->message);
}

Test(save, notices_a_file_that_was_replaced)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);
	bool done = false;

	options.progress = replace;
	options.user_data = &done;
	expect_failed(save_with("m@v1", &options), -ESTALE,
		      "model.safetensors is not the file that was written");
	cr_expect(done);
	cr_expect(eq(int, count_names(), 1), "the other process's file stays");
}

Test(save, needs_files_of_its_own_user)
{
	if (geteuid() != 0)
		cr_skip("only root can make files as another user");
	cr_assert(eq(int, mkdir(target, 0700), 0));
	cr_assert(eq(int, chmod(folder, 0777), 0));
	cr_assert(eq(int, chmod(target, 0777), 0));
	setfsuid(12345);
	expect_failed(save("m@v1"), -EPERM, "was made as a file of user 12345 with 1 links");
	setfsuid(0);
	cr_expect(eq(int, count_names(), 0));
}

Test(save, damage_is_not_saved)
{
	expect_failed(save("m@damaged"), -EBADMSG, "does not have the digest of the version");
	cr_expect(eq(int, count_names(), -1), "the folder that it made is removed");
}

static int stop(uint64_t bytes, uint64_t total, void *data)
{
	uint64_t *sum = data;

	*sum += bytes;
	return *sum >= total / 2;
}

Test(save, ends_when_it_is_cancelled)
{
	struct gpuwm_save_options options = GPUWM_OPTIONS(struct gpuwm_save_options);
	uint64_t sum = 0;

	options.progress = stop;
	options.user_data = &sum;
	cr_assert(eq(int, mkdir(target, 0700), 0));
	touch("mine");
	expect_failed(save_with("m@v1", &options), -ECANCELED, "was cancelled");
	cr_expect(eq(int, count_names(), 1), "what was there stays");
}

Test(save, a_disk_that_is_full_keeps_nothing)
{
	struct rlimit before, limit;

	getrlimit(RLIMIT_FSIZE, &before);
	limit = (struct rlimit){512, before.rlim_max};
	cr_assert(eq(int, setrlimit(RLIMIT_FSIZE, &limit), 0));
	expect_failed(save("m@v1"), -ENOSPC, "no room for model.safetensors");
	setrlimit(RLIMIT_FSIZE, &before);
	cr_expect(eq(int, count_names(), -1));
}

Test(save, a_folder_that_can_not_be_made)
{
	snprintf(target, sizeof(target), "%s/no/out", folder);
	expect_failed(save("m@v1"), -ENOENT, "does not exist");
	snprintf(target, sizeof(target), "%s/file", folder);
	close(open(target, O_CREAT | O_WRONLY | O_CLOEXEC, 0600));
	expect_failed(save("m@v1"), -ENOTDIR, "opening the folder");
}

Test(save, mappings_that_are_no_version)
{
	struct gpuwm_mapping *a = attach_to("m@v1"), *b = attach_to("m@v2");
	const struct gpuwm_mapping *const two[] = {a, b}, *const same[] = {a, a};

	expect_failed(gpuwm_save(two, 2, target, NULL), -EINVAL,
		      "mapping 0 of 2 is of rank 0, and m@v1 has 1 ranks");
	expect_failed(gpuwm_save(same, 2, target, NULL), -EINVAL, "mapping 0 of 2");
	expect_failed(gpuwm_save(two, 0, target, NULL), -EINVAL, "needs a mapping");
	expect_failed(gpuwm_save(two, 1, "", NULL), -EINVAL, "and a folder");
	cr_expect(eq(int, gpuwm_detach(a), 0));
	cr_expect(eq(int, gpuwm_detach(b), 0));
}

Test(save, a_subset_is_not_a_version)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	const char *glob = "c";
	struct gpuwm_mapping *mapping = NULL;
	const struct gpuwm_mapping *one;

	options.globs = &glob;
	options.glob_count = 1;
	cr_assert(eq(int, gpuwm_attach(client, "m@v1", &options, &mapping), 0));
	one = mapping;
	expect_failed(gpuwm_save(&one, 1, target, NULL), -ENODATA, "was not mapped");
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}

Test(save, without_memory)
{
	struct gpuwm_mapping *mapping = attach_to("m@strided");
	const struct gpuwm_mapping *const one = mapping;
	unsigned n = 1;
	int r;

	for (;; n++) {
		fail_alloc_arm(n);
		r = gpuwm_save(&one, 1, target, NULL);
		if (!fail_alloc_disarm())
			break;
		if (r == 0) /* of what the C library does for itself */
			nftw(target, remove_one, 8, FTW_DEPTH | FTW_PHYS);
		else
			cr_expect(eq(int, count_names(), -1), "allocation %u", n);
	}
	cr_expect(eq(int, r, 0), "%s", gpuwm_error()->message);
	cr_expect(gt(uint, n, 8));
	cr_expect(eq(int, gpuwm_detach(mapping), 0));
}
