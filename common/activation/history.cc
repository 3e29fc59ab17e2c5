#include "common/activation/history.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <string_view>

namespace moestro::activation {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian");

constexpr uint64_t kTokensMin = 4;  ///< of a matrix that is kept
constexpr std::string_view kMagic = "MSTEAMC1";
constexpr uint32_t kVersion = 1;

struct CheckpointHeader {
  std::array<char, 8> magic;
  uint32_t version, layers, experts, top_k;
  uint64_t pack_identity;
  uint32_t prompts, answers;
  uint64_t checksum;
};
static_assert(sizeof(CheckpointHeader) == 48 && offsetof(CheckpointHeader, pack_identity) == 24 &&
              offsetof(CheckpointHeader, checksum) == 40);

std::optional<Eamc::Change> add_to(Eamc& eamc, const ActivationMatrix& matrix) {
  const auto pairs =
      kTokensMin * static_cast<uint64_t>(eamc.shape().top_k) * static_cast<uint64_t>(eamc.shape().layers);
  return matrix.total() < pairs ? std::nullopt : eamc.insert(matrix);
}

uint64_t checksum_of(CheckpointHeader header, std::span<const std::byte> cells) {
  header.checksum = XXH3_64bits(cells.data(), cells.size());
  return XXH3_64bits(&header, sizeof header);
}

void append(const Eamc& eamc, std::vector<std::byte>& out) {
  for (int32_t i = 0; i < eamc.size(); ++i) {
    const auto cells = std::as_bytes(eamc.cells(i));
    out.insert(out.end(), cells.begin(), cells.end());
  }
}

std::span<const std::byte> fill(Eamc& eamc, uint32_t entries, std::span<const std::byte> bytes) {
  const size_t cells = eamc.shape().cells();
  for (uint32_t i = 0; i < entries; ++i, bytes = bytes.subspan(cells)) {
    if (i >= static_cast<uint32_t>(eamc.capacity())) continue;
    const auto* first = reinterpret_cast<const uint8_t*>(bytes.data());
    (void)eamc.set(static_cast<int32_t>(i), std::span(first, cells))
        .is_ok();  // in order and of the right length: it cannot fail
  }
  return bytes;
}

}  // namespace

ActivationHistory::ActivationHistory(const EamcShape& shape, int32_t capacity)
    : ActivationHistory(Eamc(shape, capacity), Eamc(shape, capacity), {}) {}

ActivationHistory::ActivationHistory(Eamc of_prompts, Eamc of_answers, shm::MappedFile memory)
    : prompts(std::move(of_prompts)),
      answers(std::move(of_answers)),
      memory_(std::move(memory)),
      view_{prompts.view(), answers.view()} {}

Result<ActivationHistory> ActivationHistory::shared(const EamcShape& shape, int32_t capacity, uint64_t pack_identity,
                                                    uint64_t segment) {
  const auto layers = static_cast<uint64_t>(shape.layers), experts = static_cast<uint64_t>(shape.experts),
             entries = static_cast<uint64_t>(capacity);
  if (layers > kHistorySideMax || experts > kHistorySideMax || entries > kHistoryCapacityMax ||
      layers * experts * entries > kHistoryCellsMax)
    return invalid_argument("a history of " + std::to_string(entries) + " requests of " + std::to_string(layers) +
                            " x " + std::to_string(experts) + " experts is more than workers take");
  const EamcLayout layout = eamc_layout(layers, experts, entries);
  MOESTRO_ASSIGN_OR_RETURN(shm::MappedFile memory,
                           shm::MappedFile::anonymous("moestro-history", history_bytes(layout), 0400));
  MOESTRO_RETURN_IF_ERROR(memory.back(0, memory.size()));
  MOESTRO_RETURN_IF_ERROR(memory.seal());
  auto& front = *reinterpret_cast<HistoryFront*>(memory.data());
  HistoryHead& head = front.head;
  head.magic = kHistoryMagic, head.version = kHistoryVersion;
  head.layers = static_cast<uint32_t>(layers), head.experts = static_cast<uint32_t>(experts),
  head.top_k = static_cast<uint32_t>(shape.top_k);
  head.capacity = static_cast<uint32_t>(capacity);
  head.pack_identity = pack_identity, head.segment = segment;
  head.bytes = history_bytes(layout);
  head.checksum = XXH3_64bits(&head, offsetof(HistoryHead, checksum));
  std::byte* arrays = memory.data() + kHistoryPage;
  return ActivationHistory(Eamc(shape, capacity, &front.prompts, arrays),
                           Eamc(shape, capacity, &front.answers, arrays + layout.bytes), std::move(memory));
}

ActivationHistory::Changes ActivationHistory::add(const RequestCounts& request) {
  return {add_to(prompts, request.prompt), add_to(answers, request.answer)};
}

std::vector<std::byte> write_checkpoint(const ActivationHistory& history, uint64_t pack_identity) {
  const EamcShape& shape = history.answers.shape();
  CheckpointHeader header{};
  std::copy(kMagic.begin(), kMagic.end(), header.magic.begin());
  header.version = kVersion;
  header.layers = static_cast<uint32_t>(shape.layers), header.experts = static_cast<uint32_t>(shape.experts);
  header.top_k = static_cast<uint32_t>(shape.top_k);
  header.pack_identity = pack_identity;
  header.prompts = static_cast<uint32_t>(history.prompts.size()),
  header.answers = static_cast<uint32_t>(history.answers.size());
  std::vector<std::byte> bytes(sizeof header);
  bytes.reserve(sizeof header + (header.prompts + size_t{header.answers}) * shape.cells());
  append(history.prompts, bytes);
  append(history.answers, bytes);
  header.checksum = checksum_of(header, std::span(bytes).subspan(sizeof header));
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

Status read_checkpoint(std::span<const std::byte> bytes, uint64_t pack_identity, ActivationHistory& history) {
  history.prompts.clear();
  history.answers.clear();
  CheckpointHeader header{};
  if (bytes.size() < sizeof header) return corrupt("activation history: it is cut short, or no checkpoint at all");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::string_view(header.magic.data(), header.magic.size()) != kMagic)
    return corrupt("activation history: no checkpoint");
  if (header.version != kVersion)
    return unsupported("activation history: version " + std::to_string(header.version) + "; this one knows version " +
                       std::to_string(kVersion));
  const std::span<const std::byte> cells = bytes.subspan(sizeof header);
  if (header.checksum != checksum_of(header, cells))
    return corrupt("activation history: damaged or cut short (its checksum differs)");
  const EamcShape& shape = history.answers.shape();
  const EamcShape its{static_cast<int32_t>(header.layers), static_cast<int32_t>(header.experts),
                      static_cast<int32_t>(header.top_k)};
  if (header.pack_identity != pack_identity || its != shape)
    return invalid_argument("activation history: of another pack");
  if (cells.size() != (header.prompts + uint64_t{header.answers}) * shape.cells())
    return corrupt("activation history: its length is not what its head says");
  fill(history.answers, header.answers, fill(history.prompts, header.prompts, cells));
  return Status::ok();
}

}  // namespace moestro::activation
