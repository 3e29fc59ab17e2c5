#include "common/machine/numa_pages.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>

namespace moestro::machine {
namespace {

constexpr size_t kPlacesAtOnce = 4096;
constexpr size_t kWordBits = sizeof(unsigned long) * CHAR_BIT;
constexpr unsigned long kMaskBits = kNodesEnd + 1;  // the kernel looks at one bit fewer than it is told of

/// The ith choice among `count`: each is made as often, and in no period.
size_t one_of(size_t count, size_t i) {
  constexpr uint64_t kGoldenRatio = 0x9E3779B97F4A7C15;  // its multiples, wrapped around, are spread evenly
  return (i * kGoldenRatio >> 32) * count >> 32;
}

size_t page_bytes() { return static_cast<size_t>(::sysconf(_SC_PAGESIZE)); }

/// The node of each page; negative: nobody knows. False: the kernel does not tell.
bool ask_for_nodes(std::span<const void*> places, std::span<int> nodes) {
  for (const void* place : places)
    (void)*static_cast<const volatile std::byte*>(place);  // or it is not in this process' tables
  return ::syscall(SYS_move_pages, 0, places.size(), places.data(), nullptr, nodes.data(), 0) == 0;
}

}  // namespace

bool has_memory_policy() {
  int mode = MPOL_DEFAULT;
  return ::syscall(SYS_get_mempolicy, &mode, nullptr, 0UL, nullptr, 0UL) == 0 && mode != MPOL_DEFAULT;
}

NodePreference::NodePreference() {
  if (::syscall(SYS_get_mempolicy, &former_mode_, former_nodes_.data(), kMaskBits - 1, nullptr, 0UL) != 0)
    former_mode_ = MPOL_DEFAULT, former_nodes_ = {};
}

NodePreference::~NodePreference() {
  if (changed_)
    (void)::syscall(SYS_set_mempolicy, former_mode_, former_mode_ == MPOL_DEFAULT ? nullptr : former_nodes_.data(),
                    kMaskBits);
}

Status NodePreference::come_from(int node) {
  Mask mask{};
  mask[static_cast<size_t>(node) / kWordBits] = 1UL << (static_cast<size_t>(node) % kWordBits);
  if (::syscall(SYS_set_mempolicy, MPOL_PREFERRED, mask.data(), kMaskBits) != 0) {
    const int error = errno;
    return unavailable("memory cannot be taken from NUMA node " + std::to_string(node) +
                       " (set_mempolicy: " + std::strerror(error) + ")");
  }
  changed_ = true;
  return Status::ok();
}

NodeMap::NodeMap(std::span<const std::byte> memory, std::vector<int16_t> nodes)
    : begin_(reinterpret_cast<uintptr_t>(memory.data())), nodes_(std::move(nodes)) {}

NodeMap NodeMap::of(std::span<const std::byte> memory) {
  const size_t pieces = (memory.size() + kNodePieceBytes - 1) / kNodePieceBytes;
  std::vector<const void*> places;
  std::vector<int> found;
  std::vector<int16_t> nodes;
  nodes.reserve(pieces);
  while (nodes.size() < pieces) {
    places.clear();
    for (size_t piece = nodes.size(); piece < pieces && places.size() < kPlacesAtOnce; ++piece) {
      const std::span<const std::byte> bytes =
          memory.subspan(piece * kNodePieceBytes, std::min(kNodePieceBytes, memory.size() - piece * kNodePieceBytes));
      places.push_back(bytes.data() + one_of(bytes.size() / page_bytes(), piece) * page_bytes());
    }
    found.assign(places.size(), -1);
    if (!ask_for_nodes(places, found)) return {};
    for (const int node : found) nodes.push_back(static_cast<int16_t>(std::max(node, -1)));
  }
  return {memory, std::move(nodes)};
}

std::map<int, size_t> NodeMap::pieces() const {
  std::map<int, size_t> pieces;
  for (const int node : nodes_)
    if (node >= 0) ++pieces[node];
  return pieces;
}

std::string node_shares(const std::map<int, size_t>& pieces) {
  size_t all = 0;
  for (const auto& [node, count] : pieces) all += count;
  std::string text;
  for (const auto& [node, count] : pieces)
    text += (text.empty() ? "node " : ", node ") + std::to_string(node) + " " +
            std::to_string((100 * count + all / 2) / all) + " %";
  return text;
}

}  // namespace moestro::machine
