/* Before a save replaces files: are these the files of another version? gpuwmd knows which version comes from which files. */
#include "save.h"

#include "../request/call.h"
#include "../../../proto/tier_kind.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static bool is_same_folder(const struct stat *a, const char *path)
{
	struct stat b;

	return stat(path, &b) == 0 && S_ISDIR(b.st_mode) && a->st_dev == b.st_dev && a->st_ino == b.st_ino;
}

/* A source is a folder or a file of one. gpuwmd may see it under this path where this process does not: then the path decides. */
static bool is_source(const struct stat *folder, const char *folder_path, const char *source)
{
	char parent[PATH_BYTES_MAX + 1];
	char *slash;

	if (is_same_folder(folder, source) || strcmp(source, folder_path) == 0)
		return true;
	snprintf(parent, sizeof(parent), "%s", source);
	slash = strrchr(parent, '/');
	if (!slash)
		return false;
	*slash = '\0';
	return is_same_folder(folder, *parent ? parent : "/") || strcmp(parent, folder_path) == 0;
}

static int sources_refuse(const struct save *save, const struct version_listed *version)
{
	enum tier tier;

	if (version->tier && tier_find(version->tier, &tier) == 0 && !tier_has_memory(tier))
		return error_set(save->error, -EEXIST, "save to another folder",
				 "the files in %s are the only copy of %s@%s", save->path, version->model,
				 version->tag);
	return error_set(save->error, -EEXIST, "save to another folder, or save that version to one first",
			 "%s@%s comes back from the files in %s", version->model, version->tag, save->path);
}

static int sources_check(const struct save *save, const struct reply *list, const char *folder_path)
{
	const struct message *message = &list->message;
	struct version_listed version;
	struct version_id own;
	struct stat folder;
	struct fields f;
	struct error why;
	uint32_t count;
	const msgpack_object *versions;
	int r = 0;

	if (fstat(save->folder, &folder) < 0)
		return save_failed(save, -errno, "looking at", NULL);
	hex128_parse(save->mappings[0]->version.id, own.bytes);
	fields_of(&f, message->body);
	versions = fields_array(&f, "versions", &count);
	for (uint32_t i = 0; r == 0 && i < count; i++) {
		if (record_read_map(&version_listed_record, &versions[i], message->zone, &version, &why) < 0)
			return error_set(save->error, -EPROTO, NULL, "list: %s", why.message);
		if (version.source && !version_id_equal(version.version, &own) &&
		    is_source(&folder, folder_path, version.source))
			r = sources_refuse(save, &version);
	}
	return f.error.code ? error_set(save->error, -EPROTO, NULL, "list: %s", f.error.message) : r;
}

int save_check_sources(const struct save *save)
{
	char *path = realpath(save->path, NULL);
	struct call call;
	struct reply list;
	int r;

	if (!path)
		return save_failed(save, -errno, "looking at", NULL);
	call_begin(&call, save->mappings[0]->client, &form_list, &(struct list_params){0});
	r = call_run(&call, 0, &list, save->error);
	if (r == 0) {
		r = sources_check(save, &list, path);
		reply_clear(&list);
	}
	free(path);
	return r;
}
