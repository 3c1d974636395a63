/* A publisher: makes a version of one small tensor in host memory.
 *
 *   publish-one MODEL@TAG
 */
#include <gpuwm/client.h>

#include <stdio.h>

static int fail(const char *what)
{
	fprintf(stderr, "%s: %s (%s)\n", what, gpuwm_error()->message, gpuwm_error()->detail);
	return 1;
}

int main(int argc, char **argv)
{
	const uint64_t shape[] = {4096};
	const struct gpuwm_tensor_spec spec = {.name = "w", .dtype = GPUWM_F32, .ndim = 1, .shape = shape};
	struct gpuwm_publish_options options = {.size = sizeof options, .device = "host"};
	struct gpuwm_version_info version;
	struct gpuwm_publish *publish;
	struct gpuwm_client *client;
	float values[4096];

	if (argc != 2)
		return fprintf(stderr, "usage: %s MODEL@TAG\n", argv[0]), 2;
	options.name = argv[1];
	for (int i = 0; i < 4096; i++)
		values[i] = (float)i;
	if (gpuwm_connect(NULL, &client) < 0)
		return fail("connect");
	if (gpuwm_publish_begin(client, &options, &spec, 1, &publish) < 0)
		return fail("begin");
	if (gpuwm_publish_write(publish, 0, 0, values, sizeof values) < 0)
		return fail("write");
	if (gpuwm_publish_commit(publish, &version) < 0)
		return fail("commit");
	printf("%s\n", version.id);
	gpuwm_close(client);
	return 0;
}
