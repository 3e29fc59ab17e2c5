#pragma once
// The packs a store serves and the table entries of their blobs. Names that lead to one version of a pack share its
// entries. Models come and go while the store serves; a version of a pack keeps its entries until nobody uses them any
// more.

#include <cstdint>
#include <map>
#include <optional>
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
    ModelMask owners = 0;   ///< the models that it counts for: those that mean it, or, retired, those that did
    std::string last_name;  ///< the name it is, or was last, served under
    bool retired = false;   ///< under no name any more; its entries stay while workers or other packs use them
    bool removed = false;   ///< its entries have been given to the machine to forget
    uint32_t blobs() const { return static_cast<uint32_t>(manifest.blobs.size()); }
  };
  struct Model {
    std::string name;
    uint32_t pack = 0;
  };

  static Result<Catalogue> open(const std::vector<ModelSource>& sources);

  /// The pack in `dir` as it is on disk now, not yet part of the catalogue. Refused whole if anything about it is not
  /// as it should be.
  static Result<Pack> look_at(const std::filesystem::path& dir);
  /// The pack of this directory and this manifest, if it has entries.
  std::optional<uint32_t> find_version(const Pack& seen) const;
  /// Where `count` entries are free, below `entries_max`.
  Result<uint32_t> free_entries(uint32_t count, uint32_t entries_max) const;
  /// Takes it in at `first_entry`; opens its files.
  Result<uint32_t> add(Pack seen, uint32_t first_entry);
  /// Opens its files anew: it is read from these from now on. Returns the number of the first one before, to be closed
  /// when nothing is read from them any more.
  Result<uint32_t> reopen(uint32_t pack);
  void close_files(uint32_t first, uint32_t count) { files_.close(first, count); }
  /// `name` means this pack from now on. The pack that it meant before is retired if no name is left for it.
  void name(const std::string& name, uint32_t pack);
  /// The number under which a model's share is kept: its own as long as the model or a worker of it is here. kExhausted
  /// above kModelsMax.
  Result<uint32_t> number(const std::string& name);
  std::optional<uint32_t> known_number(const std::string& name) const;
  /// False if there is no such model.
  bool forget_name(const std::string& name);
  /// Its entries are free and its files are not read any more: drops it.
  void drop(uint32_t pack);

  /// By index; those that were dropped are none.
  const std::map<uint32_t, Pack>& packs() const { return packs_; }
  Pack& pack(uint32_t index) { return packs_.at(index); }
  const Pack& pack(uint32_t index) const { return packs_.at(index); }
  const std::vector<Model>& models() const { return models_; }
  const PackFiles& files() const { return files_; }
  /// The pack that a model means now, or an error that lists the models there are.
  Result<uint32_t> find(const std::string& name) const;
  const Pack& pack_of_entry(uint32_t entry) const;
  const Blob& blob(uint32_t entry) const;
  bool has_entry(uint32_t entry) const;
  /// "model m, layer 3, expert 5 (bf16)" or "model m, dense blob 2".
  std::string describe(uint32_t entry) const;
  static std::vector<MachineBlob> machine_blobs(const Pack& pack);
  /// Of all packs, by entry. At start, when no entry between them is free.
  std::vector<MachineBlob> machine_blobs() const;
  /// One above the last that is in use.
  uint32_t entries() const;

 private:
  std::map<uint32_t, Pack> packs_;            ///< by a number that is never used again
  std::map<uint32_t, uint32_t> by_entry_;     ///< first entry -> pack
  std::vector<Model> models_;
  std::map<std::string, uint32_t> numbers_;
  PackFiles files_;
  uint32_t next_pack_ = 0;
};

}  // namespace moestro::store
