/* gpuwmd touches no GPU: neither its sources nor the program know CUDA. */
#include <criterion/criterion.h>
#include <elf.h>
#include <fcntl.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char text[1 << 20];

static void read_source(const char *path)
{
	FILE *file = fopen(path, "re");

	cr_assert(file, "%s is not there", path);
	text[fread(text, 1, sizeof(text) - 1, file)] = '\0';
	fclose(file);
}

/* `make` and the scripts run tests from the top of the source tree. */
Test(no_cuda, sources_neither_include_nor_open_the_driver)
{
	static const char *const words[] = {"cuda.h", "cuda_runtime", "nvml.h",     "dlopen",
					    "dlsym",  "libcuda",      "/dev/nvidia"};
	glob_t sources = {0};

	glob("daemon/*.[ch]", 0, NULL, &sources);
	glob("daemon/*/*.[ch]", GLOB_APPEND, NULL, &sources);
	cr_assert_gt(sources.gl_pathc, 150, "run this test from the top of the source tree");
	for (size_t i = 0; i < sources.gl_pathc; i++) {
		read_source(sources.gl_pathv[i]);
		for (size_t j = 0; j < sizeof(words) / sizeof(words[0]); j++)
			cr_expect_null(strstr(text, words[j]), "%s says %s", sources.gl_pathv[i], words[j]);
	}
	globfree(&sources);
}

/* ---- the program ---- */

struct program {
	const uint8_t *data;
	size_t bytes;
};

/* What the file says at an offset, or a failed test: it is a whole ELF file. */
static const void *at(const struct program *program, uint64_t offset, uint64_t bytes)
{
	cr_assert(offset <= program->bytes && bytes <= program->bytes - offset, "the program is cut short");
	return program->data + offset;
}

static struct program program_open(const char *path)
{
	struct program program = {0};
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	struct stat st;

	if (fd < 0)
		cr_skip_test("%s is not built", path);
	cr_assert_eq(fstat(fd, &st), 0);
	program.bytes = (size_t)st.st_size;
	program.data = mmap(NULL, program.bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	cr_assert(program.data != MAP_FAILED);
	close(fd);
	cr_assert_eq(memcmp(at(&program, 0, sizeof(Elf64_Ehdr)), ELFMAG, SELFMAG), 0);
	return program;
}

static const Elf64_Shdr *section(const struct program *program, uint64_t position)
{
	const Elf64_Ehdr *header = at(program, 0, sizeof(*header));

	return at(program, header->e_shoff + position * header->e_shentsize, sizeof(Elf64_Shdr));
}

static const Elf64_Shdr *section_of_type(const struct program *program, uint32_t type)
{
	const Elf64_Ehdr *header = at(program, 0, sizeof(*header));

	for (uint64_t i = 0; i < header->e_shnum; i++) {
		if (section(program, i)->sh_type == type)
			return section(program, i);
	}
	cr_assert(false, "no section of type %u", type);
	return NULL;
}

static const char *string_of(const struct program *program, const Elf64_Shdr *user, uint64_t offset)
{
	return at(program, section(program, user->sh_link)->sh_offset + offset, 1);
}

static struct program gpuwmd(void)
{
	const char *build = getenv("GPUWM_BUILD");
	char path[4096];

	snprintf(path, sizeof(path), "%s/bin/gpuwmd", build ? build : "build");
	return program_open(path);
}

Test(no_cuda, program_needs_no_library_of_the_driver)
{
	struct program program = gpuwmd();
	const Elf64_Shdr *dynamic = section_of_type(&program, SHT_DYNAMIC);
	const Elf64_Dyn *entries = at(&program, dynamic->sh_offset, dynamic->sh_size);
	int needed = 0;

	for (uint64_t i = 0; i < dynamic->sh_size / sizeof(*entries); i++) {
		if (entries[i].d_tag != DT_NEEDED)
			continue;
		const char *name = string_of(&program, dynamic, entries[i].d_un.d_val);
		cr_expect_null(strstr(name, "cuda"), "gpuwmd needs %s", name);
		cr_expect_null(strstr(name, "nvidia"), "gpuwmd needs %s", name);
		needed++;
	}
	cr_expect_geq(needed, 2, "libuv and libc at least");
}

Test(no_cuda, program_can_open_no_library_later)
{
	struct program program = gpuwmd();
	const Elf64_Shdr *symbols = section_of_type(&program, SHT_DYNSYM);
	const Elf64_Sym *entries = at(&program, symbols->sh_offset, symbols->sh_size);
	uint64_t count = symbols->sh_size / sizeof(*entries);

	for (uint64_t i = 0; i < count; i++) {
		const char *name = string_of(&program, symbols, entries[i].st_name);
		cr_expect_neq(strcmp(name, "dlopen"), 0, "gpuwmd calls dlopen");
		cr_expect_neq(strncmp(name, "cu", 2), 0, "gpuwmd calls %s", name);
	}
	cr_expect_gt(count, 50);
}
