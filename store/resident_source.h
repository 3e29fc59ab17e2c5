#pragma once
// A BlobSource without a store: it reads the whole pack into this process and verifies every checksum. For tests and
// `bench engine`.

#include <filesystem>
#include <memory>

#include "store/blob_source.h"

namespace moestro::store {

class ResidentSource final : public BlobSource {
 public:
  static Result<std::unique_ptr<ResidentSource>> open(const std::filesystem::path& pack);
  ~ResidentSource() override;
  ResidentSource(const ResidentSource&) = delete;
  ResidentSource& operator=(const ResidentSource&) = delete;

  const Manifest& manifest() const override { return manifest_; }
  std::span<const std::byte> memory() const override { return {base_, mapped_bytes_}; }
  bool memory_is_writable() const override { return writable_; }
  Status forbid_writes() override;
  std::optional<Lease> try_pin(uint32_t blob, UseWeight weight = {}) override;  ///< always succeeds
  Status fetch(std::span<const uint32_t> blobs, WantedBy why) override;  ///< kUnsupported: nothing is ever missing
  Result<Lease> next_arrival(std::chrono::milliseconds timeout) override;          ///< kUnsupported
  void cancel_fetches() override {}
  Counters counters() const override { return counters_; }

 private:
  explicit ResidentSource(Manifest manifest) : manifest_(std::move(manifest)) {}
  Status load(const std::filesystem::path& pack);
  void unpin(uint32_t blob) override;

  Manifest manifest_;
  std::byte* base_ = nullptr;  // one mapping for all blobs
  size_t mapped_bytes_ = 0;
  bool writable_ = true;
  std::vector<uint64_t> offsets_;
  std::vector<bool> pinned_;
  Counters counters_;
};

}  // namespace moestro::store
