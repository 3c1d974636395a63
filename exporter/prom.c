#include "prom.h"

#include <inttypes.h>
#include <stdarg.h>

void prom_family(FILE *out, const char *name, const char *type, const char *help)
{
	fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void prom_escape(FILE *out, const char *text)
{
	for (; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '\\' || *text == '"')
			fprintf(out, "\\%c", *text);
		else
			fputc(*text, out);
	}
}

static void labels_write(FILE *out, va_list labels)
{
	const char *name, *separator = "{";

	while ((name = va_arg(labels, const char *))) {
		fprintf(out, "%s%s=\"", separator, name);
		prom_escape(out, va_arg(labels, const char *));
		fputc('"', out);
		separator = ",";
	}
	if (*separator == ',')
		fputc('}', out);
}

void prom_u64(FILE *out, const char *name, uint64_t value, ...)
{
	va_list labels;

	fputs(name, out);
	va_start(labels, value);
	labels_write(out, labels);
	va_end(labels);
	fprintf(out, " %" PRIu64 "\n", value);
}

void prom_us(FILE *out, const char *name, uint64_t us, ...)
{
	va_list labels;

	fputs(name, out);
	va_start(labels, us);
	labels_write(out, labels);
	va_end(labels);
	fprintf(out, " %" PRIu64 ".%06" PRIu64 "\n", us / 1000000, us % 1000000);
}

void prom_single(FILE *out, const char *name, const char *type, const char *help, uint64_t value)
{
	prom_family(out, name, type, help);
	prom_u64(out, name, value, PROM_END);
}

void prom_single_us(FILE *out, const char *name, const char *type, const char *help, uint64_t us)
{
	prom_family(out, name, type, help);
	prom_us(out, name, us, PROM_END);
}

void prom_comment(FILE *out, const char *text)
{
	fputs("# ", out);
	for (; *text; text++)
		fputc((unsigned char)*text < ' ' ? ' ' : *text, out);
	fputc('\n', out);
}

bool prom_is_name(const char *text)
{
	if (!*text)
		return false;
	for (; *text; text++) {
		if (!(*text >= 'a' && *text <= 'z') && !(*text >= '0' && *text <= '9') && *text != '_')
			return false;
	}
	return true;
}
