// In C++, without any framework: tensors as a framework takes them. Each holds the mapping and its lease by
// itself, through DLPack, so the handles of gpuwm can go at once.
#include <gpuwm/client.h>
#include <gpuwm/dlpack.h>

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace
{

// What at::fromDLPack and its like make of an export: shape, strides and address, with the deleter as the end.
class Tensor
{
      public:
	explicit Tensor(DLManagedTensor *taken) : managed(taken, [](DLManagedTensor *t) { t->deleter(t); })
	{
	}
	const DLTensor &operator*() const
	{
		return managed->dl_tensor;
	}
	std::int64_t elements() const
	{
		std::int64_t count = 1;

		for (int i = 0; i < managed->dl_tensor.ndim; i++)
			count *= managed->dl_tensor.shape[i];
		return count;
	}

      private:
	std::shared_ptr<DLManagedTensor> managed;
};

struct Named {
	std::string name;
	Tensor tensor;
};

void check(int r, const char *what)
{
	if (r < 0)
		throw std::runtime_error(std::string(what) + ": " + gpuwm_error()->message);
}

std::vector<Named> load(const char *ref)
{
	gpuwm_client *client = nullptr;
	gpuwm_mapping *mapping = nullptr;
	gpuwm_tensor found;
	std::vector<Named> tensors;

	check(gpuwm_connect(nullptr, &client), "connecting");
	std::unique_ptr<gpuwm_client, decltype(&gpuwm_close)> closes(client, gpuwm_close);
	check(gpuwm_attach(client, ref, nullptr, &mapping), "attaching");
	std::unique_ptr<gpuwm_mapping, decltype(&gpuwm_drop)> drops(mapping, gpuwm_drop);
	for (std::uint64_t i = 0; i < gpuwm_tensor_count(mapping); i++) {
		DLManagedTensor *exported = nullptr;

		check(gpuwm_tensor_at(mapping, i, &found), "looking");
		check(gpuwm_dlpack(mapping, &found, &exported), "exporting");
		tensors.push_back({found.name, Tensor(exported)});
	}
	return tensors;
}

// On `host` the memory is read in place; on a GPU that is a kernel's work.
void print(const Named &named)
{
	const DLTensor &t = *named.tensor;
	const std::size_t bytes = static_cast<std::size_t>(named.tensor.elements()) * t.dtype.bits / 8;
	std::uint64_t sum = 0;

	std::printf("%s: type %d of %d bits, %" PRId64 " elements on %s:%d", named.name.c_str(), t.dtype.code,
		    t.dtype.bits, named.tensor.elements(), t.device.device_type == kDLCUDA ? "cuda" : "cpu",
		    t.device.device_id);
	for (std::size_t i = 0; i < bytes && t.device.device_type == kDLCPU; i++)
		sum += static_cast<const unsigned char *>(t.data)[i];
	std::printf(", sum of bytes %" PRIu64 "\n", sum);
}

} // namespace

int main(int argc, char **argv)
try {
	if (argc < 2)
		return std::fprintf(stderr, "usage: %s REF\n", argv[0]), 2;
	for (const Named &named : load(argv[1]))
		print(named);
	return 0;
} catch (const std::exception &e) {
	return std::fprintf(stderr, "%s\n", e.what()), 1;
}
