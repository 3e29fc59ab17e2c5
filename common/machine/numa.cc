#include "common/machine/numa.h"

#include <algorithm>
#include <charconv>
#include <fstream>

namespace moestro::machine {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

/// What stands behind "Mems_allowed_list:".
std::string allowed_nodes(const fs::path& status) {
  constexpr std::string_view kName = "Mems_allowed_list:";
  std::ifstream in(status);
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with(kName)) continue;
    const size_t begin = line.find_first_not_of(" \t", kName.size());
    return begin == std::string::npos ? std::string() : line.substr(begin);
  }
  return {};
}

}  // namespace

std::vector<int> parse_id_list(const std::string& text, int end_of_ids) {
  std::vector<int> ids;
  const char *at = text.data(), *end = at + text.size();
  while (at < end) {
    int first = 0, last = 0;
    auto parsed = std::from_chars(at, end, first);
    if (parsed.ec != std::errc{} || first < 0) return {};
    last = first;
    if (parsed.ptr < end && *parsed.ptr == '-') parsed = std::from_chars(parsed.ptr + 1, end, last);
    if (parsed.ec != std::errc{} || last < first || last >= end_of_ids) return {};
    for (int i = first; i <= last; ++i) ids.push_back(i);
    if (parsed.ptr < end && *parsed.ptr != ',') return {};
    at = parsed.ptr + 1;
  }
  return ids;
}

std::string id_list(std::span<const int> ids) {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    size_t last = i;
    while (last + 1 < ids.size() && ids[last + 1] == ids[last] + 1) ++last;
    text += (text.empty() ? "" : ",") + std::to_string(ids[i]) + (last > i ? "-" + std::to_string(ids[last]) : "");
    i = last + 1;
  }
  return text;
}

std::vector<int> memory_nodes(const fs::path& system, const fs::path& status) {
  std::vector<int> nodes = parse_id_list(first_line(system / "node/has_memory"), kNodesEnd);
  const std::vector<int> allowed = parse_id_list(allowed_nodes(status), kNodesEnd);
  if (!allowed.empty())
    std::erase_if(nodes, [&](int node) { return std::ranges::find(allowed, node) == allowed.end(); });
  return nodes.empty() ? std::vector<int>{0} : nodes;
}

Result<NodeChoice> parse_node_choice(const std::string& text) {
  using Kind = NodeChoice::Kind;
  if (text == "auto") return NodeChoice{Kind::kAuto};
  if (text == "off") return NodeChoice{Kind::kOff};
  NodeChoice choice{Kind::kNodes, parse_id_list(text, kNodesEnd)};
  if (choice.nodes.empty())
    return invalid_argument("'" + text + "' is neither auto, off, nor a list of NUMA nodes as 0 or 0,2-3");
  std::ranges::sort(choice.nodes);
  choice.nodes.erase(std::unique(choice.nodes.begin(), choice.nodes.end()), choice.nodes.end());
  return choice;
}

Result<std::vector<int>> chosen_nodes(const NodeChoice& choice, std::span<const int> there, bool said_otherwise) {
  using Kind = NodeChoice::Kind;
  if (choice.kind == Kind::kOff) return std::vector<int>{};
  if (choice.kind == Kind::kAuto)
    return there.size() < 2 || said_otherwise ? std::vector<int>{} : std::vector<int>(there.begin(), there.end());
  for (const int node : choice.nodes)
    if (std::ranges::find(there, node) == there.end())
      return invalid_argument("NUMA node " + std::to_string(node) +
                              " has no memory that this process may use; nodes that have: " + id_list(there));
  return choice.nodes;
}

}  // namespace moestro::machine
