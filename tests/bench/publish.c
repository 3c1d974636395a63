/* Publishes a version that holds one byte all over, for the other programs to attach to; prints how long it took.
 *
 *   publish --socket SOCKET [--device DEVICE] [--tensors N] [--byte N] SIZE MODEL@TAG
 */
#include "bench.h"

#include "lib/flags.h"
#include "lib/operate.h"
#include "lib/publish.h"
#include "lib/report.h"

int main(int argc, char **argv)
{
	struct filling filling = {.device = "cuda:0", .tensors = 1000};
	uint64_t byte = 1;
	const char *socket = NULL;
	struct gpuwm_client *client;
	double begin;
	const struct flag flags[] = {{"socket", .text = &socket},
				     {"device", .text = &filling.device},
				     {"tensors", .number = &filling.tensors},
				     {"byte", .number = &byte},
				     {0}};

	flags_read(argc, argv, flags);
	if (optind + 2 != argc)
		DIE("usage: publish --socket SOCKET [--device DEVICE] [--tensors N] [--byte N] SIZE MODEL@TAG");
	client = worker_connect(socket);
	filling.device = device_id(client, filling.device);
	filling.bytes = parse_bytes(argv[optind]);
	filling.byte = (unsigned char)byte;
	filling.name = argv[optind + 1];
	begin = now_us();
	publish_filled(client, &filling);
	result((now_us() - begin) / 1000, "ms", "%s published: %.2f GiB in %llu tensors on %s", filling.name,
	       (double)filling.bytes / (double)GIB(1), (unsigned long long)filling.tensors, filling.device);
	gpuwm_close(client);
	return 0;
}
