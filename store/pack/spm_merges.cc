#include "store/pack/spm_merges.h"

#include <algorithm>
#include <tuple>
#include <unordered_map>

namespace moestro::store {
namespace {

bool begins_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

int64_t characters(std::string_view text) { return std::ranges::count_if(text, begins_character); }

struct Merge {
  std::string_view left, right;
  double score = 0;
  int64_t left_length = 0, right_length = 0;
  size_t left_id = 0, right_id = 0;
};

}  // namespace

std::vector<std::pair<std::string_view, std::string_view>> spm_merges(const std::vector<std::string>& pieces,
                                                                      const std::vector<double>& scores,
                                                                      const std::vector<bool>& made) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < pieces.size(); ++i) ids.emplace(pieces[i], i);
  std::vector<Merge> all;
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!made[i]) continue;
    const std::string_view piece = pieces[i];
    const size_t first = all.size();
    for (size_t at = 1; at < piece.size(); ++at) {
      if (!begins_character(piece[at])) continue;
      const auto left = ids.find(piece.substr(0, at)), right = ids.find(piece.substr(at));
      if (left == ids.end() || right == ids.end()) continue;
      all.push_back({left->first, right->first, scores[i], characters(left->first), characters(right->first),
                     left->second, right->second});
    }
    std::stable_sort(all.begin() + static_cast<std::ptrdiff_t>(first), all.end(), [](const Merge& a, const Merge& b) {
      return std::tie(a.left_id, a.right_id) < std::tie(b.left_id, b.right_id);
    });
  }
  std::stable_sort(all.begin(), all.end(), [](const Merge& a, const Merge& b) {
    return std::tie(a.score, a.left_length, a.right_length) > std::tie(b.score, b.left_length, b.right_length);
  });
  std::vector<std::pair<std::string_view, std::string_view>> merges;
  for (const Merge& m : all) merges.emplace_back(m.left, m.right);
  return merges;
}

}  // namespace moestro::store
