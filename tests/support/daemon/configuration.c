#include "configuration.h"

#include "tests/support/any/own_folder.h"

struct error config_error;
char config_path[64];

void config_open(void)
{
	config_init(&config);
	snprintf(config_path, sizeof(config_path), "%s/config", own_folder());
}

void config_close(void)
{
	config_clear(&config);
	unlink(config_path);
}

int set(const char *section, const char *key, const char *value)
{
	config_error = (struct error){0};
	return config_set(&config, section, key, value, &config_error);
}

int run_arguments(char **argv)
{
	int argc = 0;

	while (argv[argc])
		argc++;
	config_error = (struct error){0};
	return config_arguments(&config, argc, argv, &config_error);
}

void config_file(const char *text, size_t bytes)
{
	FILE *file = fopen(config_path, "we");

	cr_assert(file && fwrite(text, 1, bytes, file) == bytes && fclose(file) == 0);
}

int config_from_bytes(const char *text, size_t bytes)
{
	config_file(text, bytes);
	config_error = (struct error){0};
	return config_read(&config, config_path, &config_error);
}

int config_from(const char *text)
{
	return config_from_bytes(text, strlen(text));
}
