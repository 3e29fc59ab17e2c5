// gguf_tokenizer FILE.gguf DIR: writes the files of the tokenizer that a pack of FILE.gguf would have. For vectors that
// are kept outside of the project (see tests/tokenizer/vector_check.cc).

#include <cstdio>

#include "store/pack/gguf_model.h"
#include "store/pack/gguf_tokenizer.h"

int main(int argc, char** argv) {
  using namespace moestro::store;
  if (argc != 3) {
    std::fprintf(stderr, "usage: gguf_tokenizer FILE.gguf DIR\n");
    return 2;
  }
  const auto model = GgufModel::open(argv[1]);
  const auto files = model ? gguf_tokenizer_files(model->header.metadata) : model.status();
  const auto written = files ? write_files(*files, argv[2]) : files.status();
  if (!written) std::fprintf(stderr, "%s\n", written.status().message().c_str());
  return written ? 0 : 1;
}
