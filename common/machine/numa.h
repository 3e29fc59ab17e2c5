#pragma once
// Nodes of memory (NUMA): which there are, on which of them a mapping's pages are to lie, and where they do lie.

#include <cstddef>
#include <filesystem>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::machine {

/// "0-3,8,10-11" as sysfs writes sets of CPUs and nodes: rising as written; empty where it makes no sense. Numbers are below `end`.
std::vector<int> parse_id_list(const std::string& text, int end);
/// The other way round: "0-1,4".
std::string id_list(std::span<const int> ids);

inline constexpr int kNodesEnd = 1024;  ///< of the kernel's largest masks

/// Nodes with memory that this process may use, rising; {0} where the machine does not say.
std::vector<int> memory_nodes(const std::filesystem::path& system = "/sys/devices/system", const std::filesystem::path& status = "/proc/self/status");

/// Where an arena's pages are to lie.
struct NodeChoice {
  enum class Kind { kAuto, kOff, kNodes } kind = Kind::kAuto;
  std::vector<int> nodes = {};  ///< of kNodes
};
/// "auto", "off", or nodes: "0", "0,2-3".
Result<NodeChoice> parse_node_choice(const std::string& text);
/// The nodes to spread over, of those `there`; empty: nothing is to be done. auto: all, where there are several and nobody (`numactl`) has said
/// otherwise. kInvalidArgument names nodes that are not there.
Result<std::vector<int>> chosen_nodes(const NodeChoice& choice, std::span<const int> there, bool said_otherwise);

/// This thread has a policy of its own for new memory: numactl's, say. False also where the kernel does not tell.
bool has_memory_policy();

/// Pages of `memory`, a mapping's whole pages, that are not backed yet are taken from these nodes in turn; from others once those are full.
/// kUnavailable: the kernel or a seccomp filter refuses.
Status spread_over(std::span<std::byte> memory, std::span<const int> nodes);

/// Of some pages of `memory`, evenly apart, those that this process has mapped: how many lie on each node. Reads a byte of each first, so `memory`
/// is backed. Empty where the kernel does not tell.
std::map<int, size_t> nodes_of_pages(std::span<const std::byte> memory);

/// "node 0 50 %, node 1 50 %"; empty for none.
std::string node_shares(const std::map<int, size_t>& pages);

}  // namespace moestro::machine
