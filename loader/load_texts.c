/* The texts of a version: what the metadata of all files of a rank say. */
#include "load_internal.h"

#include "../base/text.h"
#include "../base/utf8.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DIFFER_BYTES 800 /* of a note, for the keys whose values differ */

struct text_of {
	const struct format_text *text;
	const struct source_file *file;
	size_t position; /* of the file */
};

static int by_key(const void *a, const void *b)
{
	const struct text_of *x = a, *y = b;
	int order = strcmp(x->text->key, y->text->key);

	return order ? order : (x->position > y->position) - (x->position < y->position);
}

/* Sets *ret to the texts of all files of a rank in the order of their keys, for free(). */
static int gather_texts(struct load *load, const struct source_rank *rank, struct text_of **ret,
			size_t *ret_count)
{
	size_t most = 0, count = 0;
	struct text_of *texts;

	for (size_t i = 0; i < rank->file_count; i++)
		most += load->source.files[rank->file + i].content.metadata_count;
	texts = calloc(most + 1, sizeof(*texts));
	if (!texts)
		return error_set(load->error, -ENOMEM, NULL, "no room for %zu texts", most);
	for (size_t i = 0; i < rank->file_count; i++) {
		const struct source_file *file = &load->source.files[rank->file + i];

		for (size_t k = 0; k < file->content.metadata_count; k++)
			texts[count++] = (struct text_of){&file->content.metadata[k], file, i};
	}
	qsort(texts, count, sizeof(*texts), by_key);
	*ret = texts;
	*ret_count = count;
	return 0;
}

/* ---- keys whose values differ ---- */

struct differ {
	struct text_list list;
	char text[DIFFER_BYTES];
};

/* taken: the first text with this key. */
static void differ_add(struct differ *differ, const struct text_of *taken, const struct text_of *other)
{
	const char *first = path_last(taken->file->path), *second = path_last(other->file->path);
	char entry[DIFFER_BYTES];

	snprintf(entry, sizeof(entry), "%.*s (%.*s, not %.*s)", text_shown(taken->text->key), taken->text->key,
		 text_shown(first), first, text_shown(second), second);
	text_list_add(&differ->list, differ->text, sizeof(differ->text), "; ", entry);
}

static void differ_tell(const struct differ *differ, struct work *work)
{
	char more[48] = "";

	if (differ->list.count == 0)
		return;
	if (differ->list.count > differ->list.shown)
		snprintf(more, sizeof(more), "; and %zu more", differ->list.count - differ->list.shown);
	work_note(work,
		  "the files' metadata differ, and the version has what the first file with the key says: %s%s",
		  differ->text, more);
}

/* ---- adding ---- */

/* The key of a version comes from whoever asks for the load, and not from a file. */
static int add_text(struct load *load, const struct load_part *part, const struct format_text *text)
{
	if (load->params->wish.choice.cut && strcmp(text->key, CUT_PLAN_KEY) == 0)
		return 0;
	if (strncmp(text->key, KEY_PREFIX, strlen(KEY_PREFIX)) != 0)
		return gpuwm_publish_metadata(part->publish, text->key, text->value);
	if (part == load->parts)
		work_note(load->work,
			  "the file's text %.200s is left out: such names are the version's key, which --key "
			  "gives",
			  text->key);
	return 0;
}

int load_add_texts(struct load *load, const struct load_part *part)
{
	struct differ differ = {0};
	struct text_of *texts = NULL;
	size_t count = 0;
	int r = gather_texts(load, rank_of(load, part), &texts, &count);

	if (r < 0)
		return r;
	for (size_t i = 0, next; r == 0 && i < count; i = next) {
		size_t other = i; /* the first of another value */

		for (next = i + 1; next < count && strcmp(texts[next].text->key, texts[i].text->key) == 0;
		     next++)
			if (other == i && strcmp(texts[next].text->value, texts[i].text->value) != 0)
				other = next;
		if (other != i)
			differ_add(&differ, &texts[i], &texts[other]);
		r = add_text(load, part, texts[i].text);
	}
	free(texts);
	if (r == 0 && load->params->wish.choice.cut)
		r = gpuwm_publish_metadata(part->publish, CUT_PLAN_KEY, load->params->wish.choice.cut);
	if (r < 0)
		return load_library_failed(load, r);
	/* Replicas of one rank are neighbours, and have the same texts. */
	if (part == load->parts || part[-1].rank != part->rank)
		differ_tell(&differ, load->work);
	return 0;
}
