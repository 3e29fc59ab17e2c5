#include "store/arena/text_file.h"

#include <fcntl.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include "common/shm/mapped_file.h"

namespace moestro::store {
namespace {

constexpr std::string_view kChecksum = "checksum ";

}  // namespace

std::string hex(uint64_t value) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::string with_checksum(std::string lines) {
  lines += std::string(kChecksum) + hex(XXH3_64bits(lines.data(), lines.size())) + "\n";
  return lines;
}

Result<std::vector<std::string_view>> checked_lines(std::string_view text) {
  if (text.empty() || text.back() != '\n') return corrupt("it does not end with a line");
  const size_t before = text.substr(0, text.size() - 1).rfind('\n');
  const size_t last = before == std::string_view::npos ? 0 : before + 1;
  const std::string_view line = text.substr(last, text.size() - 1 - last);
  if (!line.starts_with(kChecksum)) return corrupt("it does not end with its checksum");
  if (line.substr(kChecksum.size()) != hex(XXH3_64bits(text.data(), last)))
    return corrupt("it does not match its checksum");
  std::vector<std::string_view> lines;
  for (size_t at = 0; at < last;) {
    const size_t end = text.find('\n', at);
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

std::string_view next_word(std::string_view& line) {
  const size_t end = std::min(line.find(' '), line.size());
  const std::string_view word = line.substr(0, end);
  line.remove_prefix(std::min(end + 1, line.size()));
  return word;
}

Result<std::string> read_lines_file(const std::filesystem::path& path, size_t bytes_max) {
  const shm::UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) return not_found(path.string() + " does not exist");
  if (!fd) return io_error("cannot open " + path.string(), errno);
  std::string text;
  char piece[1 << 16];
  while (true) {
    const ssize_t n = ::read(fd.get(), piece, sizeof piece);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return io_error("cannot read " + path.string(), errno);
    if (n == 0) break;
    text.append(piece, static_cast<size_t>(n));
    if (text.size() > bytes_max) return corrupt(path.string() + " is longer than any such file can be");
  }
  while (!text.empty() && text.back() == '\0') text.pop_back();
  return text;
}

}  // namespace moestro::store
