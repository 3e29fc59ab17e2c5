// encode_bench TOKENIZER.json TEXT: how fast the text becomes ids, at best in nine rounds.
#include <chrono>
#include <fstream>
#include <iostream>
#include <sstream>

#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/load_tokenizer.h"

namespace {

constexpr int kRounds = 9;

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: encode_bench TOKENIZER.json TEXT\n";
    return 2;
  }
  const auto tokenizer = moestro::test::load_tokenizer(argv[1]);
  if (!tokenizer.is_ok()) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  std::ifstream in(argv[2], std::ios::binary);
  std::ostringstream read;
  read << in.rdbuf();
  const std::string text = read.str();
  double best_seconds = 0;
  size_t ids_count = 0;
  for (int round = 0; round < kRounds; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    const auto ids = tokenizer->encode(text, false);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (!ids.is_ok()) {
      std::cerr << ids.status().message() << "\n";
      return 1;
    }
    ids_count = ids->size();
    if (round == 0 || seconds.count() < best_seconds) best_seconds = seconds.count();
  }
  std::cout << text.size() << " bytes, " << ids_count << " ids, " << best_seconds * 1e3 << " ms, "
            << static_cast<double>(text.size()) / best_seconds / 1e6 << " MB/s\n";
  return 0;
}
