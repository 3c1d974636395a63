/* Publishes a version that holds one byte all over, for the other programs to attach to; prints how long it took.
 *
 *   publish --socket SOCKET [--device DEVICE] [--tensors N] [--byte N] SIZE MODEL@TAG
 */
#include "bench.h"

#include "lib/operate.h"
#include "lib/publish.h"
#include "lib/report.h"

#include <getopt.h>

int main(int argc, char **argv)
{
	static const struct option options[] = {{"socket", required_argument, NULL, 's'},
						{"device", required_argument, NULL, 'd'},
						{"tensors", required_argument, NULL, 't'},
						{"byte", required_argument, NULL, 'b'},
						{0}};
	struct filling filling = {.device = "cuda:0", .tensors = 1000, .byte = 1};
	const char *socket = NULL;
	struct gpuwm_client *client;
	double begin;
	int option;

	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		if (option == 's')
			socket = optarg;
		else if (option == 'd')
			filling.device = optarg;
		else if (option == 't')
			filling.tensors = parse_bytes(optarg);
		else if (option == 'b')
			filling.byte = (unsigned char)parse_bytes(optarg);
		else
			return 2;
	}
	if (optind + 2 != argc)
		DIE("usage: publish --socket SOCKET [--device DEVICE] [--tensors N] [--byte N] SIZE MODEL@TAG");
	client = worker_connect(socket);
	filling.device = device_id(client, filling.device);
	filling.bytes = parse_bytes(argv[optind]);
	filling.name = argv[optind + 1];
	begin = now_us();
	publish_filled(client, &filling);
	result((now_us() - begin) / 1000, "ms", "%s published: %.2f GiB in %llu tensors on %s", filling.name,
	       (double)filling.bytes / (double)GIB(1), (unsigned long long)filling.tensors, filling.device);
	gpuwm_close(client);
	return 0;
}
