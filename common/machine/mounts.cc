#include "common/machine/mounts.h"

#include <fstream>
#include <sstream>

namespace moestro::machine {
namespace {

/// The kernel writes blanks in names as octal escapes.
std::string unescape(const std::string& text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto digit = [&](size_t at) { return at < text.size() && text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      plain += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      plain += text[i];
    }
  }
  return plain;
}

}  // namespace

std::vector<Mount> read_mounts(const std::filesystem::path& root) {
  std::vector<Mount> mounts;
  std::ifstream table(root / "proc/self/mountinfo");
  // 36 35 98:0 /part /point rw,noatime master:1 - ext4 /dev/sda1 rw
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string skip, options, super;
    Mount mount;
    if (!(words >> skip >> skip >> skip >> mount.root >> mount.point >> options)) continue;
    while (words >> skip && skip != "-") {
    }
    if (!(words >> mount.type >> skip)) continue;
    words >> super;
    mount.options = options + "," + super;
    mount.root = unescape(mount.root), mount.point = unescape(mount.point);
    mounts.push_back(std::move(mount));
  }
  return mounts;
}

bool has_option(const std::string& options, const std::string& option) {
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');)
    if (word == option) return true;
  return false;
}

std::string option_value(const std::string& options, const std::string& name) {
  std::istringstream words(options);
  for (std::string word; std::getline(words, word, ',');)
    if (word.starts_with(name + "=")) return word.substr(name.size() + 1);
  return {};
}

std::optional<Mount> mount_of(const std::filesystem::path& path, const std::vector<Mount>& mounts) {
  std::optional<Mount> found;
  for (const Mount& mount : mounts) {
    const std::string point = mount.point == "/" ? "" : mount.point;
    const bool above = path == point || path.string().starts_with(point + "/");
    if (above && (!found || mount.point.size() >= found->point.size())) found = mount;
  }
  return found;
}

}  // namespace moestro::machine
