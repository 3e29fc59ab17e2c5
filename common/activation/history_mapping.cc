#include "common/activation/history_mapping.h"

#include <xxhash.h>

#include <cstring>
#include <string_view>

#include "common/shm/descriptor_socket.h"

namespace moestro::activation {

Result<HistoryView> view_history(std::span<const std::byte> memory, const HistoryExpected& expected) {
  if (memory.size() < kHistoryPage) return corrupt("a shared history of " + std::to_string(memory.size()) + " bytes");
  HistoryHead head;
  std::memcpy(&head, memory.data(), sizeof head);
  if (head.magic != kHistoryMagic) return corrupt("no shared history");
  if (head.version != kHistoryVersion)
    return unsupported("a shared history of version " + std::to_string(head.version) + "; this one knows version " +
                       std::to_string(kHistoryVersion));
  if (head.checksum != XXH3_64bits(&head, offsetof(HistoryHead, checksum)))
    return corrupt("a shared history whose head is damaged");
  if (head.layers > kHistorySideMax || head.experts > kHistorySideMax || head.top_k > head.experts ||
      head.capacity > kHistoryCapacityMax || uint64_t{head.layers} * head.experts * head.capacity > kHistoryCellsMax)
    return corrupt("a shared history of an absurd size");
  const EamcLayout layout = eamc_layout(head.layers, head.experts, head.capacity);
  if (head.bytes != history_bytes(layout) || memory.size() < head.bytes)
    return corrupt("a shared history of " + std::to_string(memory.size()) + " bytes that needs " +
                   std::to_string(history_bytes(layout)));
  const EamcShape shape{static_cast<int32_t>(head.layers), static_cast<int32_t>(head.experts),
                        static_cast<int32_t>(head.top_k)};
  if (head.segment != expected.segment)
    return invalid_argument("another shared history than the one that was announced");
  if (head.pack_identity != expected.pack_identity || shape != expected.shape)
    return invalid_argument("a shared history of another pack");
  const auto& front = *reinterpret_cast<const HistoryFront*>(memory.data());
  const auto capacity = static_cast<int32_t>(head.capacity);
  return HistoryView{EamcView(shape, capacity, &front.prompts, memory.data() + kHistoryPage),
                     EamcView(shape, capacity, &front.answers, memory.data() + kHistoryPage + layout.bytes)};
}

Result<HistoryMapping> HistoryMapping::of(shm::UniqueFd memory, const HistoryExpected& expected) {
  MOESTRO_ASSIGN_OR_RETURN(shm::MappedFile file,
                           shm::MappedFile::of_descriptor(std::move(memory), shm::MappedFile::Access::kReadOnly,
                                                          kHistoryPage, "the shared history"));
  if (!file.size_is_sealed()) return invalid_argument("the shared history is memory that somebody could cut short");
  MOESTRO_ASSIGN_OR_RETURN(const HistoryView view, view_history({file.data(), file.size()}, expected));
  return HistoryMapping(std::move(file), view, expected.segment);
}

Result<HistoryMapping> HistoryMapping::receive(const std::filesystem::path& socket, const HistoryExpected& expected,
                                               std::chrono::milliseconds timeout) {
  MOESTRO_ASSIGN_OR_RETURN(shm::UniqueFd memory, shm::receive_descriptor(socket, timeout));
  return of(std::move(memory), expected);
}

std::optional<std::filesystem::path> history_socket(const std::string& endpoint) {
  constexpr std::string_view kIpc = "ipc://";
  if (!endpoint.starts_with(kIpc) || endpoint.size() == kIpc.size() || endpoint[kIpc.size()] == '@')
    return std::nullopt;  // @: a name without a file
  return std::filesystem::path(endpoint.substr(kIpc.size())).replace_extension(".history");
}

}  // namespace moestro::activation
