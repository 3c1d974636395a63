#include "flags.h"

#include "../bench.h"

#include <getopt.h>

#define FLAGS_MAX 16
#define FIRST 1 /* getopt_long returns 0 and '?' by itself */

void flags_read(int argc, char **argv, const struct flag *flags)
{
	struct option options[FLAGS_MAX + 1] = {0};
	int option;

	for (int i = 0; flags[i].name && i < FLAGS_MAX; i++)
		options[i] = (struct option){flags[i].name, flags[i].set ? no_argument : required_argument,
					     NULL, FIRST + i};
	while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
		const struct flag *flag = flags + option - FIRST;

		if (option == '?')
			exit(2);
		if (flag->text)
			*flag->text = optarg;
		else if (flag->number)
			*flag->number = parse_bytes(optarg);
		else if (flag->count)
			*flag->count = (int)parse_bytes(optarg);
		else
			*flag->set = true;
	}
}
