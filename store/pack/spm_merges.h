#pragma once
// The merges of a SentencePiece model of the kind BPE, which has none: it merges the adjacent pieces whose result has
// the highest score.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace moestro::store {

/// Every pair of pieces whose concatenation is a piece with made[i], in the order in which they are to be merged. As
/// transformers converts such models: by falling score, then length; of equal ones, by the ids of the parts.
std::vector<std::pair<std::string_view, std::string_view>> spm_merges(const std::vector<std::string>& pieces,
                                                                      const std::vector<double>& scores,
                                                                      const std::vector<bool>& made);

}  // namespace moestro::store
