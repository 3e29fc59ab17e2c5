#pragma once
// NUMA nodes: which exist, and which of them an arena uses. numa_pages.h places its pages.

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "common/status.h"

namespace moestro::machine {

/// Parses "0-3,8,10-11", the form in which sysfs writes sets of CPUs and nodes, in ascending order. Empty if the text
/// is not valid. Numbers are below `end`.
std::vector<int> parse_id_list(const std::string& text, int end);
/// The inverse: "0-1,4".
std::string id_list(std::span<const int> ids);

inline constexpr int kNodesEnd = 1024;  ///< of the kernel's largest masks

/// Nodes with memory that this process may use, ascending; {0} if the machine does not say.
std::vector<int> memory_nodes(const std::filesystem::path& system = "/sys/devices/system",
                              const std::filesystem::path& status = "/proc/self/status");

/// Which nodes hold an arena's pages.
struct NodeChoice {
  enum class Kind { kAuto, kOff, kNodes } kind = Kind::kAuto;
  std::vector<int> nodes = {};  ///< of kNodes
};
/// "auto", "off", or nodes: "0", "0,2-3".
Result<NodeChoice> parse_node_choice(const std::string& text);
/// The nodes to spread over, of those in `there`; empty: pages are not placed. auto: all nodes, if there are several
/// and no policy (`numactl`) is set. kInvalidArgument names nodes that do not exist.
Result<std::vector<int>> chosen_nodes(const NodeChoice& choice, std::span<const int> there, bool said_otherwise);

}  // namespace moestro::machine
