#include "format.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define CONVERT FORMATS_SUPPORTED "; convert the model with the library that wrote it"
#define FETCH "`git lfs pull` in the repository's folder fetches the file itself"
#define DOWNLOAD "the download saved a page (a login, or an error) in place of the file: download it again"
#define COMPRESSED "compressed by "
#define UNPACK "unpack it; " FORMATS_SUPPORTED
#define INDEX_END ".index.json"
#define FOLDER "name the model's folder, or one of its " FORMAT_NAMES " files"

static const struct {
	size_t at;
	const char *bytes;
	size_t length;
	struct foreign format;
} signatures[] = {
#define SIGNATURE(at, bytes) at, bytes, sizeof(bytes) - 1
	{SIGNATURE(0, "GGUF"), {"a GGUF file", CONVERT}},
	{SIGNATURE(0, "\x93NUMPY"), {"a NumPy file (.npy)", CONVERT}},
	{SIGNATURE(0, "\x89HDF\r\n\x1a\n"), {"an HDF5 file", CONVERT}},
	{SIGNATURE(4, "TFL3"), {"a TensorFlow Lite file", CONVERT}},
	{SIGNATURE(257, "ustar"), {"a tar archive", UNPACK}},
	{SIGNATURE(0, "\x1f\x8b"), {COMPRESSED "gzip", UNPACK}},
	{SIGNATURE(0, "\x28\xb5\x2f\xfd"), {COMPRESSED "zstd", UNPACK}},
	{SIGNATURE(0, "\xfd"
		      "7zXZ"),
	 {COMPRESSED "xz", UNPACK}},
	{SIGNATURE(0, "version https://git-lfs.github.com/spec/"),
	 {"a Git LFS pointer, which stands for the file", FETCH}},
#undef SIGNATURE
};

static const struct foreign pytorch = {"a PyTorch (zip) file", CONVERT},
			    numpy = {"a NumPy archive (.npz)", CONVERT}, zip = {"a zip archive", UNPACK},
			    pickle = {"a pickle", CONVERT}, onnx = {"an ONNX model", CONVERT},
			    html = {"an HTML page", DOWNLOAD}, xml = {"an XML text", DOWNLOAD},
			    json = {"a JSON text", FOLDER};

static const struct {
	const char *end;
	struct foreign format;
} names[] = {
	{".gguf", {"named as a GGUF file", CONVERT}},
	{".bin", {"named as a PyTorch file", CONVERT}},
	{".pt", {"named as a PyTorch file", CONVERT}},
	{".pth", {"named as a PyTorch file", CONVERT}},
	{".ckpt", {"named as a PyTorch file", CONVERT}},
	{".pkl", {"named as a pickle", CONVERT}},
	{".pickle", {"named as a pickle", CONVERT}},
	{".joblib", {"named as a pickle", CONVERT}},
	{".pdparams", {"named as a pickle", CONVERT}},
	{".onnx", {"named as an ONNX model", CONVERT}},
	{".npy", {"named as a NumPy file", CONVERT}},
	{".npz", {"named as a NumPy archive", CONVERT}},
	{".h5", {"named as an HDF5 file", CONVERT}},
	{".hdf5", {"named as an HDF5 file", CONVERT}},
	{".keras", {"named as a Keras file", CONVERT}},
	{".tflite", {"named as a TensorFlow Lite file", CONVERT}},
	{".msgpack", {"named as a Flax file", CONVERT}},
	{".ot", {"named as weights of tch-rs", CONVERT}},
	{".pb", {"named as a TensorFlow graph", CONVERT}},
	{".mlmodel", {"named as a Core ML model", CONVERT}},
	{".engine", {"named as a TensorRT engine", CONVERT}},
};

/* ---- zip ----------------------------------------------------------------- */

/* Offsets in a zip's first entry. */
#define ZIP_NAME_LENGTH 26
#define ZIP_NAME 30

static bool name_ends(const char *name, size_t length, const char *end)
{
	size_t tail = strlen(end);

	return length >= tail && memcmp(name + length - tail, end, tail) == 0;
}

/* The first file in the archive says which program wrote it. */
static const struct foreign *zip_format(const uint8_t *peek, size_t bytes)
{
	size_t length;

	if (bytes < ZIP_NAME)
		return &zip;
	length = (size_t)(peek[ZIP_NAME_LENGTH] | peek[ZIP_NAME_LENGTH + 1] << 8);
	if (length > bytes - ZIP_NAME)
		return &zip;
	if (name_ends((const char *)peek + ZIP_NAME, length, "data.pkl"))
		return &pytorch;
	return name_ends((const char *)peek + ZIP_NAME, length, ".npy") ? &numpy : &zip;
}

/* ---- what has no signature ----------------------------------------------- */

/* Whether this is a protobuf message that begins with the fields of ONNX: the version (1, below
 * 32), then the producer's name (2), its version (3), a domain (4) or the graph (7). */
static bool is_onnx(const uint8_t *peek, size_t bytes)
{
	return bytes >= 4 && peek[0] == 0x08 && peek[1] > 0 && peek[1] < 32 && peek[2] &&
	       strchr("\x12\x1a\x22\x3a", peek[2]);
}

static const struct foreign *text_format(const char *text, size_t bytes)
{
	while (bytes > 0 && *text && strchr(" \t\r\n", *text)) {
		text++;
		bytes--;
	}
	if ((bytes >= 14 && strncasecmp(text, "<!doctype html", 14) == 0) ||
	    (bytes >= 5 && strncasecmp(text, "<html", 5) == 0))
		return &html;
	if (bytes >= 5 && memcmp(text, "<?xml", 5) == 0)
		return &xml;
	return bytes > 0 && *text == '{' ? &json : NULL;
}

bool foreign_is_json(const struct foreign *foreign)
{
	return foreign == &json;
}

const struct foreign *foreign_name(const char *path)
{
	size_t length = strlen(path);

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		size_t tail = strlen(names[i].end);

		if (length > tail && strcasecmp(path + length - tail, names[i].end) == 0)
			return &names[i].format;
	}
	return NULL;
}

/* By the first bytes; texts have none of these. */
static const struct foreign *binary_format(const uint8_t *peek, size_t bytes)
{
	if (bytes >= 4 && memcmp(peek, "PK\003\004", 4) == 0)
		return zip_format(peek, bytes);
	for (size_t i = 0; i < sizeof(signatures) / sizeof(signatures[0]); i++)
		if (bytes >= signatures[i].at + signatures[i].length &&
		    memcmp(peek + signatures[i].at, signatures[i].bytes, signatures[i].length) == 0)
			return &signatures[i].format;
	if (bytes >= 2 && peek[0] == 0x80 && peek[1] <= 5)
		return &pickle;
	return is_onnx(peek, bytes) ? &onnx : NULL;
}

const struct foreign *foreign_format(const char *path, const uint8_t *peek, size_t bytes)
{
	const struct foreign *found = binary_format(peek, bytes);

	if (!found)
		found = text_format((const char *)peek, bytes);
	return found ? found : foreign_name(path);
}

const struct foreign *foreign_beside(const char *path, const uint8_t *peek, size_t bytes)
{
	const struct foreign *found = binary_format(peek, bytes), *packed = NULL;
	const char *end = strrchr(path, '.');
	char *name;

	if (!found || strncmp(found->what, COMPRESSED, strlen(COMPRESSED)) != 0 || !end)
		return found ? found : foreign_name(path);
	name = strndup(path, (size_t)(end - path));
	packed = name ? foreign_name(name) : NULL;
	free(name);
	return packed;
}

bool foreign_is_pointer(const struct foreign *foreign)
{
	return strcmp(foreign->remedy, FETCH) == 0;
}

bool foreign_is_index(const char *name)
{
	const size_t length = strlen(name), tail = strlen(INDEX_END);
	char *of;
	bool is_index;

	if (length <= tail || strcmp(name + length - tail, INDEX_END) != 0)
		return false;
	of = strndup(name, length - tail);
	is_index = of && (foreign_name(of) || format_of_name(of));
	free(of);
	return is_index;
}
