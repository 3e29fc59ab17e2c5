#pragma once
// Nodes of memory (NUMA): which there are, and which of them an arena is to lie on. Its pages: numa_pages.h.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::machine {

/// "0-3,8,10-11" as sysfs writes sets of CPUs and nodes: rising as written; empty where it makes no sense. Numbers are
/// below `end`.
std::vector<int> parse_id_list(const std::string& text, int end);
/// The other way round: "0-1,4".
std::string id_list(std::span<const int> ids);

inline constexpr int kNodesEnd = 1024;  ///< of the kernel's largest masks

/// Nodes with memory that this process may use, rising; {0} where the machine does not say.
std::vector<int> memory_nodes(const std::filesystem::path& system = "/sys/devices/system",
                              const std::filesystem::path& status = "/proc/self/status");

/// Where an arena's pages are to lie.
struct NodeChoice {
  enum class Kind { kAuto, kOff, kNodes } kind = Kind::kAuto;
  std::vector<int> nodes = {};  ///< of kNodes
};
/// "auto", "off", or nodes: "0", "0,2-3".
Result<NodeChoice> parse_node_choice(const std::string& text);
/// The nodes to spread over, of those `there`; empty: nothing is to be done. auto: all, where there are several and
/// nobody (`numactl`) has said otherwise. kInvalidArgument names nodes that are not there.
Result<std::vector<int>> chosen_nodes(const NodeChoice& choice, std::span<const int> there, bool said_otherwise);

}  // namespace moestro::machine
