/* Versions that workers make. */
#include "harness.h"

#include <grp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

SYSTEM_SUITE(publishing);

static struct gpuwm_publish_options options_of(struct gpuwmd *d, const char *name)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);

	options.name = name;
	options.device = d->device;
	return options;
}

/* A part of one tensor of 1,000 bytes. */
static int part_begin(struct gpuwm_client *client, const struct gpuwm_publish_options *options,
		      struct gpuwm_publish **ret_publish)
{
	uint64_t shape = 1000;
	struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_U8, .ndim = 1, .shape = &shape};

	return gpuwm_publish_begin(client, options, &spec, 1, ret_publish);
}

GPUWMD_TEST(publishing, what_is_published_is_what_workers_read)
{
	struct gpuwm_client *client = client_new();

	OK(publish_version(client, d->device, "m@v1", LARGE(1)));
	gpuwm_close(client);
	worker_reads(d, "m@v1", 1);
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(publishing, a_published_and_a_loaded_version_have_the_same_layout_and_content,
	       gpuwmd_start(NULL), gpuwmd_stop)
{
	json_t *loaded, *published;

	load_small(d, 1);
	OK(publish_version(d->admin, d->device, "m@v2", SMALL(1)));
	loaded = version_entry(d, "m", "v1");
	published = version_entry(d, "m", "v2");
	cr_assert_str_eq(json_string_value(json_object_get(loaded, "layout")),
			 json_string_value(json_object_get(published, "layout")));
	json_decref(loaded);
	json_decref(published);
}

GPUWMD_TEST(publishing, tied_tensors_lie_in_one_place)
{
	struct gpuwm_publish_options options = options_of(d, "m@v1");
	uint64_t shape = 512;
	struct gpuwm_tensor_spec specs[] = {
		{.name = "embed", .dtype = GPUWM_F32, .ndim = 1, .shape = &shape},
		{.name = "head", .dtype = GPUWM_F32, .ndim = 1, .shape = &shape, .tied_to = "embed"},
	};
	struct gpuwm_client *client = client_new();
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor embed, head;
	uint8_t data[2048];

	OK(gpuwm_publish_begin(client, &options, specs, 2, &publish));
	content_fill(1, "embed", 0, data, sizeof data);
	OK(gpuwm_publish_write(publish, 0, 0, data, sizeof data));
	OK(gpuwm_publish_commit(publish, &version));
	OK(gpuwm_attach(client, version.id, NULL, &mapping));
	OK(gpuwm_tensor_find(mapping, "embed", &embed));
	OK(gpuwm_tensor_find(mapping, "head", &head));
	cr_assert_eq(embed.data, head.data);
	cr_assert(tensor_holds(mapping, &embed, 1));
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(publishing, strides_files_and_metadata_arrive)
{
	struct gpuwm_publish_options options = options_of(d, "m@v1");
	uint64_t shape[2] = {4, 6};
	int64_t strides[2] = {1, 4};
	struct gpuwm_tensor_spec spec = {
		.name = "t", .dtype = GPUWM_I16, .ndim = 2, .shape = shape, .strides = strides};
	struct gpuwm_client *client = client_new();
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint32_t bytes;

	OK(gpuwm_publish_begin(client, &options, &spec, 1, &publish));
	OK(gpuwm_publish_metadata(publish, "made by", "a test"));
	OK(gpuwm_publish_file(publish, "config.json", "{}", 2));
	OK(gpuwm_publish_commit(publish, &version));
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	cr_assert(tensor.strides[0] == 1 && tensor.strides[1] == 4 && tensor.bytes == 48);
	cr_assert_str_eq(gpuwm_metadata(mapping, "made by"), "a test");
	cr_assert(memcmp(gpuwm_file(mapping, "config.json", &bytes), "{}", 2) == 0 && bytes == 2);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

/* One block of Q4_K for each 256 elements of a row. */
GPUWMD_TEST(publishing, blocks_of_gguf_arrive)
{
	struct gpuwm_publish_options options = options_of(d, "m@v1");
	uint64_t shape[2] = {3, 512};
	struct gpuwm_tensor_spec spec = {.name = "t", .dtype = GPUWM_Q4_K, .ndim = 2, .shape = shape};
	struct gpuwm_client *client = client_new();
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct DLManagedTensor *export;
	struct gpuwm_tensor tensor;
	uint8_t data[3 * 2 * 144], read[sizeof data];
	uint32_t elements, bytes;

	content_fill(1, "t", 0, data, sizeof data);
	shape[1] = 255;
	cr_assert_eq(gpuwm_publish_begin(client, &options, &spec, 1, &publish), -EINVAL);
	cr_assert(strstr(gpuwm_error()->message, "t is Q4_K: its last dimension of 255"), "%s",
		  gpuwm_error()->message);
	shape[1] = 512;
	spec.dtype = (enum gpuwm_dtype)99;
	cr_assert_eq(gpuwm_publish_begin(client, &options, &spec, 1, &publish), -EINVAL);
	cr_assert(strstr(gpuwm_error()->message, "t: there is no dtype 99"), "%s", gpuwm_error()->message);
	spec.dtype = GPUWM_Q4_K;
	OK(gpuwm_publish_begin(client, &options, &spec, 1, &publish));
	OK(gpuwm_publish_write(publish, 0, 0, data, sizeof data));
	OK(gpuwm_publish_commit(publish, NULL));
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	cr_assert_str_eq(gpuwm_dtype_name(tensor.dtype), "Q4_K");
	cr_assert(tensor.ndim == 2 && tensor.shape[0] == 3 && tensor.shape[1] == 512 &&
		  tensor.strides[0] == 512 && tensor.strides[1] == 1);
	OK(gpuwm_dtype_block(tensor.dtype, &elements, &bytes));
	cr_assert_eq(tensor.bytes, 3 * 512 / elements * bytes);
	cr_assert_eq(tensor.bytes, sizeof data);
	OK(gpuwm_tensor_read(mapping, &tensor, 0, read, sizeof read));
	cr_assert_arr_eq(read, data, sizeof data);
	OK(gpuwm_tensors_verify(mapping, NULL, 0));
	cr_assert_eq(gpuwm_dlpack(mapping, &tensor, &export), -ENOTSUP);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

GPUWMD_TEST(publishing, new_memory_is_zero)
{
	struct gpuwm_publish_options options = options_of(d, "m@v1");
	struct gpuwm_client *client = client_new();
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_mapping *mapping;
	struct gpuwm_tensor tensor;
	uint8_t data[1000], zeros[1000] = {0};

	OK(part_begin(client, &options, &publish));
	OK(gpuwm_publish_commit(publish, &version));
	OK(gpuwm_attach(client, "m", NULL, &mapping));
	OK(gpuwm_tensor_at(mapping, 0, &tensor));
	OK(gpuwm_tensor_read(mapping, &tensor, 0, data, sizeof data));
	cr_assert(memcmp(data, zeros, sizeof data) == 0);
	OK(gpuwm_detach(mapping));
	gpuwm_close(client);
	DROP(d, "m@v1");
}

/* ---- ranks ------------------------------------------------------------ */

/* argv: device, rank, world, the publish to join ("" begins one). Says 'b' when it has
 * begun, after writing its id to the file; commits on 'c'. */
static int rank_publish(int argc, char **argv)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;
	FILE *file;

	CHILD_ASSERT(argc == 5);
	options.name = "tp@v1";
	options.device = argv[0];
	options.rank = (uint32_t)atoi(argv[1]);
	options.world = (uint32_t)atoi(argv[2]);
	options.join = argv[3][0] ? argv[3] : NULL;
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(part_begin(client, &options, &publish) == 0);
	CHILD_ASSERT((file = fopen(argv[4], "we")) != NULL);
	fputs(gpuwm_publish_id(publish), file);
	fclose(file);
	child_say('b');
	if (child_hear() != 'c')
		return 1;
	CHILD_ASSERT(gpuwm_publish_commit(publish, &version) == 0);
	gpuwm_close(client);
	return 0;
}

/* Two ranks of tp@v1 that have begun. */
static void ranks_begin(struct gpuwmd *d, struct process ranks[2])
{
	char path[96], id[33] = "";
	FILE *file;

	snprintf(path, sizeof path, "%s/publish", d->dir);
	for (int i = 0; i < 2; i++) {
		ranks[i] = process_start(rank_publish, d->device, i ? "1" : "0", "2", id, path, NULL);
		process_expect(&ranks[i], 'b');
		file = fopen(path, "re");
		cr_assert(file && fgets(id, sizeof id, file) && strlen(id) == 32);
		fclose(file);
	}
}

GPUWMD_TEST(publishing, a_version_of_several_ranks_is_ready_when_all_are)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_handles *handles;
	struct process ranks[2];

	ranks_begin(d, ranks);
	process_tell(&ranks[1], 'c');
	process_finish(&ranks[1]);
	cr_assert(!version_is(d, "tp", "v1", "ready"));
	FAILS(ENOENT, gpuwm_get_handles(d->admin, "tp", NULL, &handles));
	process_tell(&ranks[0], 'c');
	process_finish(&ranks[0]);
	cr_assert(version_is(d, "tp", "v1", "ready"));
	options.rank = 1;
	OK(gpuwm_get_handles(d->admin, "tp", &options, &handles));
	cr_assert(gpuwm_handles_version(handles)->rank == 1 && gpuwm_handles_version(handles)->world == 2);
	OK(gpuwm_handles_release(handles));
	options.rank = 2;
	cr_assert_lt(gpuwm_get_handles(d->admin, "tp", &options, &handles), 0);
	DROP(d, "tp@v1");
}

GPUWMD_TEST(publishing, one_rank_that_dies_fails_the_version_and_frees_all_ranks)
{
	struct process ranks[2];

	ranks_begin(d, ranks);
	process_tell(&ranks[1], 'c');
	process_finish(&ranks[1]);
	process_kill(&ranks[0], SIGKILL);
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "tp", "v1", "failed") && memory_of(d) == 0));
}

GPUWMD_TEST(publishing, a_rank_that_is_taken_and_a_join_of_nothing_are_refused)
{
	struct gpuwm_publish_options options = options_of(d, "tp@v1");
	struct gpuwm_publish *first, *second;
	char id[33];

	options.world = 2;
	OK(part_begin(d->admin, &options, &first));
	strcpy(id, gpuwm_publish_id(first));
	options.join = id;
	FAILS(EEXIST, part_begin(d->admin, &options, &second));
	options.rank = 2;
	FAILS(EINVAL, part_begin(d->admin, &options, &second));
	options.rank = 1;
	options.join = "00112233445566778899aabbccddeeff";
	FAILS(ENOENT, part_begin(d->admin, &options, &second));
	OK(gpuwm_publish_abort(first, "enough"));
}

/* ---- refusals --------------------------------------------------------- */

GPUWMD_TEST(publishing, an_abort_gives_all_back_and_keeps_its_reason)
{
	struct gpuwm_publish *publish;
	json_t *entry, *error;

	OK(publish_begin(d->admin, d->device, "m@v1", LARGE(1), &publish));
	OK(publish_fill(publish, LARGE(1)));
	OK(gpuwm_publish_abort(publish, "changed my mind"));
	cr_assert(EVENTUALLY(SOON_MS, version_is(d, "m", "v1", "failed") && memory_of(d) == 0));
	entry = version_entry(d, "m", "v1");
	error = json_object_get(entry, "error");
	cr_assert(strstr(json_string_value(json_object_get(error, "message")), "changed my mind"));
	json_decref(entry);
}

GPUWMD_TEST(publishing, a_tag_that_is_taken_is_refused)
{
	struct gpuwm_publish *publish;

	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	FAILS(EEXIST, publish_begin(d->admin, d->device, "m@v1", SMALL(2), &publish));
	FAILS(EINVAL, publish_begin(d->admin, d->device, "m@current", SMALL(2), &publish));
	DROP(d, "m@v1");
}

GPUWMD_TEST_BY(publishing, no_room_quotes_the_budget,
	       gpuwmd_start("--set", "budget.host=8M", "--set", "budget.*=584M", NULL), gpuwmd_stop_empty)
{
	/* 576 MiB of a GPU are for the checker's context. */
	struct gpuwm_publish *publish;

	FAILS(ENOSPC, publish_begin(d->admin, d->device, "m@v1", LARGE(1), &publish));
	cr_assert(strpbrk(gpuwm_error()->message, "0123456789") || strpbrk(gpuwm_error()->detail, "0123456789"),
		  "%s (%s)", gpuwm_error()->message, gpuwm_error()->detail);
	OK(publish_version(d->admin, d->device, "m@v1", SMALL(1)));
	DROP(d, "m@v1");
}

/* argv: device. Root's child as nobody, without groups. */
static int stranger_publish(int argc, char **argv)
{
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;

	CHILD_ASSERT(argc == 1);
	CHILD_ASSERT(setgroups(0, NULL) == 0 && setgid(65534) == 0 && setuid(65534) == 0);
	CHILD_ASSERT(gpuwm_connect(NULL, &client) == 0);
	CHILD_ASSERT(publish_begin(client, argv[0], "m@v1", SMALL(1), &publish) == -EACCES);
	CHILD_ASSERT(strstr(gpuwm_error()->message, "publish") || strstr(gpuwm_error()->detail, "publish"));
	gpuwm_close(client);
	return 0;
}

GPUWMD_TEST_IF(publishing, those_who_are_not_in_the_group_may_not, NEEDS_ROOT(),
	       gpuwmd_start("--set", "socket.mode=0666", NULL), gpuwmd_stop_empty)
{
	struct process stranger;

	stranger = process_start(stranger_publish, d->device, NULL);
	process_finish(&stranger);
}
