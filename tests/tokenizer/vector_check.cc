// vector_check TOKENIZER.json CASES.inp IDS.out: compares ids with reference vectors. The cases of CASES.inp
// are separated by
// "\n__ggml_vocab_test__\n"; IDS.out has one line of ids per case, without special tokens. Exit 0 if all are
// equal.
#include <fstream>
#include <iostream>
#include <sstream>

#include "orchestrator/tokenizer/tokenizer.h"
#include "tests/tokenizer/load_tokenizer.h"

namespace {

constexpr std::string_view kSeparator = "\n__ggml_vocab_test__\n";

std::string read_file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

std::string joined(const std::vector<moestro::TokenId>& ids) {
  std::string text;
  for (const auto id : ids) text += " " + std::to_string(id);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::cerr << "usage: vector_check TOKENIZER.json CASES.inp IDS.out\n";
    return 2;
  }
  const auto tokenizer = moestro::test::load_tokenizer(argv[1]);
  if (!tokenizer) {
    std::cerr << tokenizer.status().message() << "\n";
    return 1;
  }
  const std::string cases = read_file(argv[2]);
  std::istringstream expected_lines(read_file(argv[3]));
  int total = 0, exact = 0;
  for (size_t begin = 0; begin <= cases.size();) {
    size_t end = cases.find(kSeparator, begin);
    if (end == std::string::npos) end = cases.size();
    std::string line;
    std::getline(expected_lines, line);  // past the last line: the empty case that the last separator ends in
    std::istringstream numbers(line);
    std::vector<moestro::TokenId> expected;
    for (moestro::TokenId id; numbers >> id;) expected.push_back(id);
    const auto ids = tokenizer->encode(cases.substr(begin, end - begin), false);
    ++total;
    if (ids && *ids == expected) {
      ++exact;
    } else {
      std::cout << "case " << total << ":\n  expected" << joined(expected) << "\n  got     "
                << (ids ? joined(*ids) : " " + ids.status().message()) << "\n";
    }
    begin = end + kSeparator.size();
  }
  std::cout << exact << " of " << total << " cases exact\n";
  return total > 0 && exact == total ? 0 : 1;
}
