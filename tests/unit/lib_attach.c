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

TestSuite(attach, .init = client_setup, .fini = client_teardown);

Test(attach, shows_what_was_published)
{
	struct gpuwm_version_info published = four_publish();
	struct gpuwm_mapping *mapping = attach_to("m");
	const struct gpuwm_version_info *version = gpuwm_mapping_version(mapping);
	struct gpuwm_tensor tensor;

	cr_assert(eq(int, memcmp(version->content, published.content, 16), 0));
	cr_assert(eq(u64, version->bytes, published.bytes));
	cr_assert(eq(u64, version->generation, 7));
	cr_assert(eq(u64, gpuwm_tensor_count(mapping), 4));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "b", &tensor), 0));
	cr_assert(eq(int, tensor.dtype, GPUWM_F32));
	cr_assert(eq(u64, tensor.shape[1], 20));
	cr_assert(eq(long, tensor.strides[0], 20));
	cr_assert(epsilon_eq(flt, ((const float *)tensor.data)[199], 199, 0));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "scalar", &tensor), 0));
	cr_assert(eq(long, *(const int64_t *)tensor.data, -5));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(attach, orders_tensors_by_name_and_ties_them_to_one_place)
{
	struct gpuwm_tensor first, second, tied;
	struct gpuwm_mapping *mapping;

	four_publish();
	mapping = attach_to("m");
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &first), 0));
	cr_assert(eq(str, (char *)first.name, "a"));
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 1, &second), 0));
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 2, &tied), 0));
	cr_assert(eq(str, (char *)tied.name, "head"));
	cr_assert(tied.data == second.data);
	cr_assert(eq(int, memcmp(tied.digest, second.digest, 16), 0));
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 4, &tied), -ERANGE));
	cr_assert(eq(int, gpuwm_tensor_find(mapping, "nothing", &tied), -ENOENT));
	cr_assert(strstr(gpuwm_error()->message, "m@v1 has no tensor nothing") != NULL);
	cr_assert(eq(int, gpuwm_tensor_find(mapping, NULL, &tied), -ENOENT));
	gpuwm_detach(mapping);
}

Test(attach, tells_all_tensors_in_one_call)
{
	struct gpuwm_tensor all[5] = {[4] = {.ndim = 7}}, one;
	struct gpuwm_mapping *mapping;

	four_publish();
	mapping = attach_to("m");
	cr_assert(eq(u64, gpuwm_tensor_count(mapping), 4));
	cr_assert(eq(int, gpuwm_tensors(mapping, all), 0));
	for (unsigned t = 0; t < 4; t++) {
		cr_assert(eq(int, gpuwm_tensor_at(mapping, t, &one), 0));
		cr_expect(all[t].name == one.name && all[t].shape == one.shape && all[t].data == one.data);
	}
	cr_expect(eq(uint, all[4].ndim, 7));
	gpuwm_detach(mapping);
}

Test(attach, carries_texts_and_files)
{
	struct gpuwm_mapping *mapping;
	const char *key, *value;
	const void *data;
	uint32_t bytes;

	four_publish();
	mapping = attach_to("m");
	cr_assert(eq(str, (char *)gpuwm_metadata(mapping, "format"), "pt"));
	cr_assert(gpuwm_metadata(mapping, "nothing") == NULL);
	cr_assert(gpuwm_metadata(mapping, NULL) == NULL);
	cr_assert(gpuwm_file(mapping, NULL, &bytes) == NULL);
	cr_assert(eq(int, gpuwm_metadata_at(mapping, 0, &key, &value), 0));
	cr_assert(eq(str, (char *)key, "format"));
	cr_assert(eq(int, gpuwm_metadata_at(mapping, 1, &key, &value), -ERANGE));
	data = gpuwm_file(mapping, "config.json", &bytes);
	cr_assert(eq(u32, bytes, 2));
	cr_assert(eq(int, memcmp(data, "{}", 2), 0));
	cr_assert(eq(int, gpuwm_file_at(mapping, 0, &key, &data, &bytes), 0));
	cr_assert(eq(int, gpuwm_file_at(mapping, 1, &key, &data, &bytes), -ERANGE));
	gpuwm_detach(mapping);
}

Test(attach, reads_parts_of_tensors)
{
	struct gpuwm_tensor tensor;
	struct gpuwm_mapping *mapping;
	float two[2];

	four_publish();
	mapping = attach_to("m");
	gpuwm_tensor_find(mapping, "b", &tensor);
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 792, two, 8), 0));
	cr_assert(epsilon_eq(flt, two[1], 199, 0));
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 796, two, 8), -ERANGE));
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 801, two, 0), -ERANGE));
	tensor.segment = 5;
	cr_assert(eq(int, gpuwm_tensor_read(mapping, &tensor, 0, two, 8), -ERANGE));
	gpuwm_detach(mapping);
}

Test(attach, shares_one_mapping_under_two_leases)
{
	struct gpuwm_mapping *first, *second;
	struct gpuwm_tensor a, b;

	four_publish();
	first = attach_to("m");
	second = attach_to("m");
	cr_assert(eq(uint, fake->leases, 2));
	gpuwm_tensor_at(first, 0, &a);
	gpuwm_tensor_at(second, 0, &b);
	cr_assert(a.data == b.data);
	cr_assert(eq(int, gpuwm_detach(first), 0));
	cr_assert(eq(uint, fake->leases, 1));
	cr_assert(eq(int, ((const char *)b.data)[199], 7));
	cr_assert(eq(int, gpuwm_detach(second), 0));
	cr_assert(eq(int, gpuwm_detach(NULL), 0));
}

static void *attach_and_detach(void *unused)
{
	for (int i = 0; i < 50; i++) {
		struct gpuwm_mapping *mapping = attach_to("m");
		struct gpuwm_tensor tensor;

		gpuwm_tensor_at(mapping, 0, &tensor);
		cr_assert(eq(int, ((const char *)tensor.data)[0], 7));
		cr_assert(eq(int, gpuwm_detach(mapping), 0));
	}
	return unused;
}

Test(attach, is_shared_by_threads_that_come_and_go)
{
	pthread_t threads[4];

	four_publish();
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, attach_and_detach, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	cr_assert(eq(uint, fake->leases, 0));
}

Test(attach, gives_the_lease_back_when_mapping_fails)
{
	struct gpuwm_mapping *mapping = NULL;

	four_publish();
	fake->bytes[1] += 4096;
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -EBADMSG));
	cr_assert(strstr(gpuwm_error()->message, "m@v1") != NULL);
	cr_assert(eq(uint, fake->leases, 0));
	cr_assert(mapping == NULL);
}

Test(attach, refuses_memory_of_a_gpu_that_is_not_here)
{
	struct gpuwm_mapping *mapping = NULL;
	int r;

	four_publish();
	strcpy(fake->device, "GPU-00000000-0000-0000-0000-000000000000");
	r = gpuwm_attach(client, "m", NULL, &mapping);
	cr_assert(r == -ENOTSUP || r == -ENODEV);
	cr_assert(strlen(gpuwm_error()->detail) > 0);
	cr_assert(eq(uint, fake->leases, 0));
}

Test(attach, passes_on_refusals_and_checks_its_arguments)
{
	struct gpuwm_attach_options options = GPUWM_OPTIONS(struct gpuwm_attach_options);
	struct gpuwm_mapping *mapping = NULL;

	error_set(&fake->refusal, -ENODEV, "it is on host and GPU-1", "say on which device");
	strcpy(fake->refuse, "get_handles");
	cr_assert(eq(int, gpuwm_attach(client, "m", NULL, &mapping), -ENODEV));
	cr_assert(eq(str, (char *)gpuwm_error()->detail, "it is on host and GPU-1"));
	cr_assert(eq(int, gpuwm_attach(client, NULL, NULL, &mapping), -EINVAL));
	options.size--;
	cr_assert(eq(int, gpuwm_attach(client, "m", &options, &mapping), -EINVAL));
	cr_assert(eq(int, gpuwm_attach(NULL, "m", NULL, &mapping), -EINVAL));
}

Test(attach, outlives_the_client_and_the_daemon)
{
	struct gpuwm_tensor tensor;
	struct gpuwm_mapping *mapping;

	four_publish();
	mapping = attach_to("m");
	client = gpuwm_close(client);
	cr_assert(eq(int, gpuwm_tensor_at(mapping, 0, &tensor), 0));
	cr_assert(eq(int, ((const char *)tensor.data)[0], 7));
	strcpy(fake->refuse, "release");
	fake->hang_up = true;
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(attach, says_that_a_release_was_refused)
{
	struct gpuwm_mapping *mapping;

	four_publish();
	mapping = attach_to("m");
	error_set(&fake->refusal, -ENOENT, NULL, "no such lease");
	strcpy(fake->refuse, "release");
	cr_assert(eq(int, gpuwm_detach(mapping), -EIO));
	cr_assert(eq(str, (char *)gpuwm_error()->message, "no such lease"));
}

/* 0 when a child can read on and do nothing else. */
static int in_child(struct gpuwm_mapping *mapping, const struct gpuwm_tensor *tensor)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);
	struct gpuwm_tensor again;

	if (((const char *)tensor->data)[199] != 7)
		return 1;
	if (gpuwm_detach(mapping) != -ECHILD || gpuwm_tensor_at(mapping, 0, &again) != -ECHILD)
		return 2;
	options.socket = fake->path;
	if (gpuwm_connect(&options, &client) < 0)
		return 3;
	mapping = attach_to("m");
	if (gpuwm_tensor_at(mapping, 0, &again) < 0 || again.data == tensor->data)
		return 4;
	return gpuwm_detach(mapping) == 0 ? 0 : 5;
}

Test(attach, can_be_read_in_a_child_which_attaches_anew)
{
	struct gpuwm_tensor tensor;
	struct gpuwm_mapping *mapping;

	four_publish();
	mapping = attach_to("m");
	gpuwm_tensor_at(mapping, 0, &tensor);
	cr_assert(eq(int, IN_CHILD(in_child(mapping, &tensor)), 0));
	cr_assert(eq(uint, fake->leases, 1));
	cr_assert(eq(int, gpuwm_detach(mapping), 0));
}

Test(attach, kills_a_writer)
{
	struct gpuwm_tensor tensor;
	struct gpuwm_mapping *mapping;
	int status;
	pid_t child;

	four_publish();
	mapping = attach_to("m");
	gpuwm_tensor_at(mapping, 0, &tensor);
	child = fork();
	if (child == 0) {
		signal(SIGSEGV, SIG_DFL);
		*(volatile char *)tensor.data = 1;
		_exit(0);
	}
	waitpid(child, &status, 0);
	cr_assert(eq(int, status & 0x7f, SIGSEGV));
	gpuwm_detach(mapping);
}

Test(attach, gives_handles_to_those_who_map_themselves)
{
	struct gpuwm_handles *handles;
	struct gpuwm_tensor tensor;
	const char *key, *value;
	const void *content;
	uint32_t content_bytes;
	uint64_t bytes;
	char *data;
	int fd;

	four_publish();
	cr_assert(eq(int, gpuwm_get_handles(client, "m@v1", NULL, &handles), 0));
	cr_assert(eq(str, (char *)gpuwm_handles_version(handles)->device, "host"));
	cr_assert(eq(u64, gpuwm_handles_tensor_count(handles), 4));
	cr_assert(eq(int, gpuwm_handles_tensor_at(handles, 0, &tensor), 0));
	cr_assert(tensor.data == NULL);
	cr_assert(eq(int, gpuwm_handles_tensor_at(handles, 4, &tensor), -ERANGE));
	cr_assert(eq(int, gpuwm_handles_metadata_at(handles, 0, &key, &value), 0));
	cr_assert(eq(str, (char *)key, "format"));
	cr_assert(eq(str, (char *)value, "pt"));
	cr_assert(eq(int, gpuwm_handles_metadata_at(handles, 1, &key, &value), -ERANGE));
	cr_assert(eq(int, gpuwm_handles_file_at(handles, 0, &key, &content, &content_bytes), 0));
	cr_assert(eq(str, (char *)key, "config.json"));
	cr_assert(eq(u32, content_bytes, 2));
	cr_assert(eq(int, gpuwm_handles_file_at(handles, 1, &key, &content, &content_bytes), -ERANGE));
	fd = gpuwm_handles_segment(handles, 0, &bytes);
	data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert(eq(int, data[tensor.offset], 7));
	munmap(data, bytes);
	cr_assert(eq(int, gpuwm_handles_segment(handles, 1, &bytes), -ERANGE));
	cr_assert(ge(int, gpuwm_handles_index(handles, &bytes), 0));
	cr_assert(eq(u64, bytes, fake->bytes[0]));
	cr_assert(eq(int, gpuwm_handles_release(handles), 0));
	cr_assert(eq(int, gpuwm_handles_release(NULL), 0));
	cr_assert(eq(uint, fake->leases, 0));
}

Test(attach, closes_handles_in_a_child)
{
	struct gpuwm_handles *handles;
	uint64_t bytes;
	int fd;

	four_publish();
	cr_assert(eq(int, gpuwm_get_handles(client, "m", NULL, &handles), 0));
	fd = gpuwm_handles_segment(handles, 0, &bytes);
	cr_assert(eq(int,
		     IN_CHILD(fcntl(fd, F_GETFD) == -1 && gpuwm_handles_release(handles) == -ECHILD ? 0 : 1),
		     0));
	cr_assert(eq(int, gpuwm_handles_release(handles), 0));
}
