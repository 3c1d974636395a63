/* The metadata and the small files of a version, read from its index memfd as
 * docs/protocol.md describes it; nothing else is mapped. */
#ifndef GPUWM_CTL_INDEX_TEXTS_H
#define GPUWM_CTL_INDEX_TEXTS_H

#include <stddef.h>
#include <stdint.h>

struct index_texts {
	const uint8_t *data; /* mapped */
	uint64_t bytes, heap;
	uint32_t metadata_count, file_count;
	uint64_t metadata, files; /* where the tables begin */
};

/* 0; -EBADMSG when the header or its tables lie outside; or what mmap says. */
int index_texts_open(int fd, uint64_t bytes, struct index_texts *ret_texts);
void index_texts_close(struct index_texts *texts);

/* Entry `position`; texts end with a zero byte and live until the close. -EBADMSG. */
int index_texts_metadata(const struct index_texts *texts, uint32_t position, const char **ret_key,
			 const char **ret_value);
int index_texts_file(const struct index_texts *texts, uint32_t position, const char **ret_name,
		     uint32_t *ret_bytes);

#endif
