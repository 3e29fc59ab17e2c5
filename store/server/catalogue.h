#pragma once
// The packs a store serves and the table entries of their blobs. Names that lead to one pack share its entries.

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "store/machine/store_machine.h"
#include "store/pack/manifest.h"
#include "store/reader/pack_files.h"
#include "store/server/store_options.h"

namespace moestro::store {

class Catalogue {
 public:
  struct Pack {
    std::filesystem::path dir;
    Manifest manifest;
    uint32_t first_entry = 0;  ///< blob i is table entry first_entry + i
    uint32_t first_file = 0;
    uint64_t largest_expert = 0, dense_bytes = 0, expert_bytes = 0;
    uint32_t experts = 0;
  };
  struct Model {
    std::string name;
    uint32_t pack = 0;
  };

  static Result<Catalogue> open(const std::vector<ModelSource>& sources);

  const std::vector<Pack>& packs() const { return packs_; }
  const std::vector<Model>& models() const { return models_; }
  const PackFiles& files() const { return files_; }
  /// The index of a model, or an error that lists those there are.
  Result<uint32_t> find(const std::string& name) const;
  const Pack& pack_of(uint32_t model) const { return packs_[models_[model].pack]; }
  const Pack& pack_of_entry(uint32_t entry) const;
  const Blob& blob(uint32_t entry) const;
  /// "model m, layer 3, expert 5 (bf16)" or "model m, dense blob 2".
  std::string describe(uint32_t entry) const;
  std::vector<MachineBlob> machine_blobs() const;
  uint32_t entries() const;

 private:
  Result<uint32_t> add_pack(const std::filesystem::path& dir);
  std::vector<Pack> packs_;
  std::vector<Model> models_;
  PackFiles files_;
};

}  // namespace moestro::store
