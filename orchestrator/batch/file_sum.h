#pragma once
// A checksum of a file's bytes, computed as they arrive.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace moestro::orchestrator {

class FileSum {
 public:
  FileSum();
  FileSum(FileSum&&) noexcept;
  FileSum& operator=(FileSum&&) noexcept;
  ~FileSum();
  void add(std::string_view bytes);
  uint64_t bytes() const { return bytes_; }  ///< so far
  std::string text() const;                  ///< of them: XXH3-128, as 32 hexadecimal digits

 private:
  struct State;
  std::unique_ptr<State> state_;
  uint64_t bytes_ = 0;
};

}  // namespace moestro::orchestrator
