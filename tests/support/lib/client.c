#include "client.h"

struct fake *fake;
struct gpuwm_client *client;
int fds_before;
struct memory_device device;

struct gpuwm_connect_options to_fake(void)
{
	struct gpuwm_connect_options options = GPUWM_OPTIONS(struct gpuwm_connect_options);

	options.socket = fake->path;
	options.name = "test";
	return options;
}

struct gpuwm_client *client_with(const struct gpuwm_connect_options *options)
{
	struct gpuwm_client *made = NULL;

	cr_assert(eq(int, gpuwm_connect(options, &made), 0), "%s", gpuwm_error()->message);
	return made;
}

void client_start(const char *device_id)
{
	struct gpuwm_connect_options options;

	fds_before = fd_count();
	fake = fake_start();
	strcpy(fake->device, device_id);
	options = to_fake();
	client = client_with(&options);
}

void client_setup(void)
{
	client_start("host");
}

void client_teardown(void)
{
	gpuwm_close(client);
	fake_stop(fake);
	cr_assert(eq(int, fd_count(), fds_before));
}

struct gpuwm_mapping *attach_to(const char *ref)
{
	struct gpuwm_mapping *mapping = NULL;

	cr_assert(eq(int, gpuwm_attach(client, ref, NULL, &mapping), 0), "%s", gpuwm_error()->message);
	return mapping;
}

unsigned leases(void)
{
	return __atomic_load_n(&fake->leases, __ATOMIC_SEQ_CST);
}

void refuses(const char *method, int code, const char *message)
{
	error_set(&fake->refusal, code, NULL, "%s%s", message ? message : method, message ? "" : " is refused");
	strcpy(fake->refuse, method);
}

int child_status(pid_t child)
{
	int status;

	cr_assert(eq(int, waitpid(child, &status, 0), child));
	return status;
}
