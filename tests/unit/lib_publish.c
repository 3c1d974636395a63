#include "client/lib/publish/publish.h"
#include "tests/support/any/child.h"
#include "proto/index/index.h"

#include <criterion/criterion.h>
#include <criterion/new/assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "tests/support/lib/four.h"

TestSuite(publish, .init = client_setup, .fini = client_teardown);

Test(publish, hands_a_version_in)
{
	struct gpuwm_version_info version = four_publish();

	cr_assert(eq(str, fake->name, "m@v1"));
	cr_assert(eq(u64, fake->granted, version.bytes));
	cr_assert(eq(uint, fake->commits, 1));
	cr_assert(eq(str, version.id, FAKE_VERSION));
	cr_assert(eq(str, version.model, "m"));
	cr_assert(eq(str, version.tag, "v1"));
	cr_assert(eq(u64, version.tensors, 4));
	cr_assert(eq(uint, version.segments, 1));
}

Test(publish, aborts)
{
	struct gpuwm_publish *publish = four_begin();

	cr_assert(eq(str, (char *)gpuwm_publish_id(publish), FAKE_VERSION));
	cr_assert(eq(int, gpuwm_publish_abort(publish, "no longer needed"), 0));
	cr_assert(eq(str, fake->reason, "no longer needed"));
	/* The budget goes to others at once, so the memory is gone before. */
	cr_assert(eq(uint, fake->segments_at_abort, 0));
	cr_assert(eq(int, gpuwm_publish_abort(NULL, NULL), 0));
	cr_assert(eq(uint, fake->aborts, 1));
}

Test(publish, that_came_without_its_checker_is_aborted)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;

	options.name = "m@v1";
	options.device = "host";
	fake->no_fds = true;
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -EPROTO));
	cr_assert(strstr(gpuwm_error()->message, "checker") != NULL, "%s", gpuwm_error()->message);
	cr_assert(publish == NULL);
	cr_assert(eq(uint, fake->aborts, 1), "else its budget is gone for as long as the client is there");
}

Test(publish, refuses_writes_outside_of_a_tensor)
{
	struct gpuwm_publish *publish = four_begin();
	uint64_t bytes;
	void *data;

	cr_assert(eq(int, gpuwm_publish_write(publish, 3, 1, &bytes, 8), -ERANGE));
	cr_assert(eq(int, gpuwm_publish_write(publish, 3, 9, &bytes, 0), -ERANGE));
	cr_assert(eq(int, gpuwm_publish_write(publish, 3, 8, &bytes, 0), 0));
	cr_assert(eq(int, gpuwm_publish_memory(publish, 4, &data, &bytes), -ERANGE));
	gpuwm_publish_abort(publish, NULL);
}

Test(publish, refuses_texts_and_files_that_are_there_or_do_not_fit)
{
	struct gpuwm_publish *publish = four_begin();
	static char large[33 << 20];

	cr_assert(eq(int, gpuwm_publish_metadata(publish, "k", "v"), 0));
	cr_assert(eq(int, gpuwm_publish_metadata(publish, "k", "v"), -EEXIST));
	cr_assert(eq(int, gpuwm_publish_metadata(publish, NULL, "v"), -EINVAL));
	cr_assert(eq(int, gpuwm_publish_file(publish, "f", large, sizeof(large)), -EFBIG));
	cr_assert(strstr(gpuwm_error()->detail, "32 MiB") != NULL);
	cr_assert(eq(int, gpuwm_publish_file(publish, "f", NULL, 1), -EINVAL));
	gpuwm_publish_abort(publish, NULL);
}

Test(publish, aligns_tensors_as_it_is_asked)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	const uint64_t refused[] = {1, 8, 24, MIB(2) + 16, MIB(4), UINT64_MAX}, taken[] = {16, 4096, MIB(2)};

	options.name = "m@v1";
	options.device = "host";
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct gpuwm_publish *publish = NULL;

		options.align = refused[i];
		cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -EINVAL));
		cr_assert(strstr(gpuwm_error()->detail, "power of two") != NULL);
	}
	for (size_t i = 0; i < sizeof(taken) / sizeof(taken[0]); i++) {
		struct gpuwm_publish *publish = NULL;
		struct gpuwm_mapping *mapping;
		struct gpuwm_tensor tensor;
		void *data;

		options.align = taken[i];
		cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), 0));
		for (size_t t = 0; t < 4; t++) {
			cr_assert(eq(int, gpuwm_publish_memory(publish, t, &data, NULL), 0));
			cr_assert(eq(u64, (uintptr_t)data % taken[i], 0));
		}
		cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0), "%s", gpuwm_error()->message);
		mapping = attach_to("m");
		for (uint64_t t = 0; t < 4; t++) {
			cr_assert(eq(int, gpuwm_tensor_at(mapping, t, &tensor), 0));
			cr_assert(eq(u64, (uintptr_t)tensor.data % taken[i], 0));
		}
		gpuwm_detach(mapping);
	}
}

Test(publish, refuses_options_before_it_asks)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;

	cr_assert(eq(int, gpuwm_publish_begin(client, NULL, four_specs, 4, &publish), -EINVAL));
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -EINVAL));
	options.name = "m@v1";
	options.device = "host";
	options.rank = 1;
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -EINVAL));
	options.rank = 0;
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, NULL, 4, &publish), -EINVAL));
	options.device = "cuda:0";
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -EINVAL));
	cr_assert(publish == NULL);
}

Test(publish, passes_on_the_refusal_of_begin_and_commit)
{
	struct gpuwm_publish_options options = GPUWM_OPTIONS(struct gpuwm_publish_options);
	struct gpuwm_publish *publish = NULL;

	options.name = "m@v1";
	options.device = "host";
	error_set(&fake->refusal, -ENOSPC, NULL, "no room on host");
	strcpy(fake->refuse, "publish_begin");
	cr_assert(eq(int, gpuwm_publish_begin(client, &options, four_specs, 4, &publish), -ENOSPC));
	strcpy(fake->refuse, "publish_commit");
	error_set(&fake->refusal, -EBADMSG, NULL, "tensor b is damaged");
	cr_assert(eq(int, gpuwm_publish_commit(four_begin(), NULL), -EBADMSG));
	cr_assert(eq(str, (char *)gpuwm_error()->message, "tensor b is damaged"));
}

Test(publish, asks_the_daemon_why_the_checker_left)
{
	fake->hang_up = true;
	strcpy(fake->refuse, "hand_in");
	cr_assert(eq(int, gpuwm_publish_commit(four_begin(), NULL), 0));
	cr_assert(eq(uint, fake->commits, 1));
}

Test(publish, tells_that_the_alias_was_not_moved)
{
	struct gpuwm_version_info version;

	fake->alias_error = true;
	cr_assert(eq(int, gpuwm_publish_commit(four_begin(), &version), 1));
	cr_assert(eq(str, (char *)gpuwm_error()->message, "\"v1\" is a tag"));
	cr_assert(eq(str, (char *)gpuwm_error()->name, "EEXIST"));
	cr_assert(eq(str, version.tag, "v1"));
}

Test(publish, aborts_when_the_checker_refuses)
{
	error_set(&fake->refusal, -EBADMSG, NULL, "not like this");
	strcpy(fake->refuse, "hand_in");
	cr_assert(eq(int, gpuwm_publish_commit(four_begin(), NULL), -EBADMSG));
	cr_assert(eq(uint, fake->aborts, 1));
	cr_assert(eq(str, fake->reason, "not like this"));
}

Test(publish, digests_what_the_filler_did_not)
{
	struct gpuwm_publish *publish = four_begin();
	struct digest given = {{1, 2, 3}}, zeros = digest_of((const uint64_t[1]){0}, 8);
	const struct publish_part *part;
	struct index_map map;
	struct error error;

	publish_digest(publish, 2, &given); /* tied to tensor 0 */
	cr_assert(eq(int, publish_seal(publish, NULL, NULL, &part, &error), 0), "%s", error.message);
	cr_assert(eq(u64, part->tensors, 4));
	cr_assert(eq(u32, part->segment_count, publish_plan(publish)->segment_count));
	cr_assert(eq(int, index_map_open(part->index_fd, part->index_bytes, false, &map, &error), 0));
	cr_assert(digest_equal(&map.view.tensors[1].digest, &given)); /* b */
	cr_assert(digest_equal(&map.view.tensors[2].digest, &given)); /* head */
	cr_assert(digest_equal(&map.view.tensors[3].digest, &zeros)); /* scalar */
	cr_assert(digest_equal(&map.view.header->content, &part->content));
	index_map_close(&map);
	cr_assert(ge(int, part->segments[0].fd, 0));
	cr_assert(ge(int, part->index_fd, 0));
	publish_free(publish);
}

Test(publish, is_refused_in_a_child_that_keeps_none_of_it)
{
	struct gpuwm_publish *publish = four_begin();
	int fd = publish_segment(publish, 0)->fd, status;
	pid_t child = fork();

	if (child == 0) {
		uint64_t bytes;
		void *data;

		if (fcntl(fd, F_GETFD) != -1 || gpuwm_publish_memory(publish, 0, &data, &bytes) != -ECHILD)
			_exit(1);
		if (gpuwm_publish_commit(publish, NULL) != -ECHILD)
			_exit(2);
		_exit(gpuwm_publish_abort(publish, NULL) == -ECHILD ? 0 : 3);
	}
	waitpid(child, &status, 0);
	cr_assert(eq(int, status, 0));
	cr_assert(eq(int, gpuwm_publish_commit(publish, NULL), 0));
}
