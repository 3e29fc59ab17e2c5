#include "store/pack/blob_builder.h"

#include <algorithm>
#include <cstring>

#include "common/dense_layout.h"
#include "common/model/strict_json.h"
#include "store/pack/convert.h"
#include "store/pack/quantise.h"

namespace moestro::store {
namespace {

Status does_not_fit(const SourceTensor& tensor, DType to) {
  return invalid_argument("tensor " + model::in_quotes(tensor.name) + " holds values that " +
                          std::string(dtype_name(to)) + " cannot (beyond its range); choose another precision");
}

/// What of `bytes`, which lie at `at` in the blob, lies in its bytes [begin, begin + out.size()).
void copy_part(std::span<const std::byte> bytes, uint64_t at, uint64_t begin, std::span<std::byte> out) {
  const uint64_t first = std::max(begin, at), last = std::min(begin + out.size(), at + bytes.size());
  if (first < last) std::memcpy(out.data() + (first - begin), bytes.data() + (first - at), last - first);
}

Status has_too_many_exponents(const SourceTensor& tensor) {
  return unsupported("tensor " + model::in_quotes(tensor.name) + " has numbers of too many magnitudes for " +
                     std::string(dtype_name(DType::kBF16In12)) +
                     ": more than 1 in 128 has an exponent beyond the 16 most frequent; choose bf16");
}

/// Bytes of `columns` values of a row: whole blocks.
int64_t source_bytes(const SourceTensor& tensor, int64_t columns) { return row_bytes(*tensor.dtype, columns); }

}  // namespace

Status BlobBuilder::build(uint32_t blob, const Sink& sink) {
  return plan_.origins[blob].expert < 0 ? build_dense(blob, sink) : build_expert(blob, sink);
}

Status BlobBuilder::build_dense(uint32_t blob, const Sink& sink) {
  uint64_t begin = 0;
  for (const Slice& slice : plan_.manifest.blobs[blob].slices) {
    piece_.assign(slice.length, std::byte{0});
    for (const uint32_t tensor : plan_.origins[blob].tensors)
      MOESTRO_RETURN_IF_ERROR(fill_from_tensor(tensor, begin, piece_));
    MOESTRO_RETURN_IF_ERROR(sink(piece_));
    begin += slice.length;
  }
  return Status::ok();
}

// Writes what of the tensor lies in the blob's bytes [begin, begin + out.size()).
Status BlobBuilder::fill_from_tensor(uint32_t index, uint64_t begin, std::span<std::byte> out) {
  const PackedTensor& packed = plan_.manifest.tensors[index];
  const SourceTensor& source = checkpoint_.tensor(checkpoint_.model().dense[index].source_name);
  if (packed.dtype == DType::kBF16In12) return fill_in_12_bits(packed, source, begin, out);
  if (is_quantised(packed.dtype)) return fill_from_matrix(packed, source, begin, out);
  // Values are converted as they lie, or whole blocks: a piece may begin and end within one.
  const auto columns = static_cast<uint64_t>(block_shape(*source.dtype).columns);
  const auto from = static_cast<uint64_t>(source_bytes(source, static_cast<int64_t>(columns))),
             to = static_cast<uint64_t>(row_bytes(packed.dtype, static_cast<int64_t>(columns)));
  const uint64_t packed_end = packed.offset + source.bytes / from * to;
  if (begin + out.size() <= packed.offset || begin >= packed_end) return Status::ok();
  const uint64_t first = begin > packed.offset ? (begin - packed.offset) / to : 0,
                 last = (std::min(begin + out.size(), packed_end) - packed.offset + to - 1) / to;
  source_.resize((last - first) * from);
  converted_.resize((last - first) * to);
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(source, first * from, source_));
  if (!convert_values(*source.dtype, source_.data(), packed.dtype, converted_.data(),
                      static_cast<int64_t>((last - first) * columns)))
    return does_not_fit(source, packed.dtype);
  copy_part(converted_, packed.offset + first * to, begin, out);
  return Status::ok();
}

// The same for a quantised matrix. A piece may begin and end within a row: its rows are quantised whole, and what of
// them lies in the piece is kept.
Status BlobBuilder::fill_from_matrix(const PackedTensor& packed, const SourceTensor& source, uint64_t begin,
                                     std::span<std::byte> out) {
  const int64_t rows = packed.shape[0], cols = packed.shape[1], source_row = source_bytes(source, cols);
  const int64_t value_row = row_bytes(packed.dtype, cols), parameter_row = parameter_bytes(packed.dtype, cols);
  std::vector<std::byte> source_bytes_of_row(static_cast<size_t>(source_row)), values(static_cast<size_t>(value_row));
  std::vector<uint16_t> parameters(static_cast<size_t>(parameter_row) / sizeof(uint16_t));
  const auto piece_begin = static_cast<int64_t>(begin), piece_end = piece_begin + static_cast<int64_t>(out.size());
  const auto fill = [&](int64_t part, int64_t row_length, const std::byte* row_data) -> Status {
    const int64_t first = std::max<int64_t>(0, (piece_begin - part) / row_length),
                  last = std::min(rows, ceil_div(piece_end - part, row_length));
    for (int64_t r = first; r < last; ++r) {
      MOESTRO_RETURN_IF_ERROR(checkpoint_.read(source, static_cast<uint64_t>(r * source_row), source_bytes_of_row));
      MOESTRO_RETURN_IF_ERROR(convert_row(source, *source.dtype, source_bytes_of_row.data(), packed.dtype, cols,
                                          values.data(), reinterpret_cast<std::byte*>(parameters.data())));
      copy_part({row_data, static_cast<size_t>(row_length)}, static_cast<uint64_t>(part + r * row_length), begin, out);
    }
    return Status::ok();
  };
  const auto offset = static_cast<int64_t>(packed.offset);
  MOESTRO_RETURN_IF_ERROR(fill(offset, value_row, values.data()));
  return fill(offset + dense_parameters_offset(packed.dtype, rows, cols), parameter_row,
              reinterpret_cast<const std::byte*>(parameters.data()));
}

// The same in 12 bits. Which exponents have codes all numbers decide, so the matrix is read twice before its first
// piece.
Status BlobBuilder::fill_in_12_bits(const PackedTensor& packed, const SourceTensor& source, uint64_t begin,
                                    std::span<std::byte> out) {
  const int64_t rows = packed.shape[0], cols = packed.shape[1], row_length = row_bytes(packed.dtype, cols);
  const uint64_t parameters = packed.offset + static_cast<uint64_t>(dense_parameters_offset(packed.dtype, rows, cols));
  const uint64_t parameters_end = parameters + static_cast<uint64_t>(bf16_in_12::exponents_bytes(rows, cols)),
                 end = begin + out.size();
  if (end <= packed.offset || begin >= parameters_end) return Status::ok();
  if (rows > bf16_in_12::kNumbersMax / cols)
    return unsupported("tensor " + model::in_quotes(source.name) + " has more than " +
                       std::to_string(bf16_in_12::kNumbersMax) +
                       " numbers, the most of a matrix in 12 bits; choose bf16");
  if (encoded_ != &source) {
    encoded_ = nullptr;
    encoder_.emplace(rows, cols);
    for (int64_t r = 0; r < rows; ++r) {
      MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
      encoder_->count(wide_.data(), cols);
    }
    for (int64_t r = 0; r < rows; ++r) {
      MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
      encoder_->list(wide_.data(), cols);
    }
    if (!encoder_->fits()) return has_too_many_exponents(source);
    encoded_ = &source;
  }
  std::vector<std::byte> bytes(static_cast<size_t>(row_length));
  const auto row_of = [&](uint64_t at) {
    return at <= packed.offset ? 0 : static_cast<int64_t>(at - packed.offset) / row_length;
  };
  for (int64_t r = row_of(begin), last = std::min(rows, row_of(end - 1) + 1); r < last; ++r) {
    MOESTRO_RETURN_IF_ERROR(read_row_as_bf16(source, r, cols));
    encoder_->write_row(wide_.data(), bytes.data());
    copy_part(bytes, packed.offset + static_cast<uint64_t>(r * row_length), begin, out);
  }
  if (end <= parameters) return Status::ok();
  bytes.resize(parameters_end - parameters);
  encoder_->write_exponents(bytes.data());
  copy_part(bytes, parameters, begin, out);
  return Status::ok();
}

Status BlobBuilder::read_row_as_bf16(const SourceTensor& source, int64_t row, int64_t cols) {
  const int64_t bytes = source_bytes(source, cols);
  source_.resize(static_cast<size_t>(bytes));
  wide_.resize(static_cast<size_t>(cols));
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(source, static_cast<uint64_t>(row * bytes), source_));
  return convert_row(source, *source.dtype, source_.data(), DType::kBF16, cols,
                     reinterpret_cast<std::byte*>(wide_.data()), nullptr);
}

Status BlobBuilder::build_expert(uint32_t blob, const Sink& sink) {
  const model::ExpertTensors& expert = checkpoint_.model().experts[static_cast<size_t>(plan_.origins[blob].expert)];
  const ExpertLayout& layout = plan_.layout(plan_.manifest.blobs[blob]);
  band_.tensor = nullptr;
  for (int64_t i = 0; i < layout.tiles(); ++i) {
    MOESTRO_RETURN_IF_ERROR(build_tile(expert, layout, i));
    MOESTRO_RETURN_IF_ERROR(sink(piece_));
  }
  return Status::ok();
}

Status BlobBuilder::build_tile(const model::ExpertTensors& expert, const ExpertLayout& layout, int64_t index) {
  const ExpertTile tile = layout.tile(index);
  piece_.assign(static_cast<size_t>(tile.bytes), std::byte{0});
  const ExpertFormats& to = layout.formats();
  MOESTRO_RETURN_IF_ERROR(
      fill_rows(checkpoint_.tensor(expert.gate), to.gate, layout.hidden(), tile, tile.gate, tile.gate_scales));
  MOESTRO_RETURN_IF_ERROR(
      fill_rows(checkpoint_.tensor(expert.up), to.up, layout.hidden(), tile, tile.up, tile.up_scales));
  MOESTRO_RETURN_IF_ERROR(load_band(checkpoint_.tensor(expert.down), layout, tile));
  return fill_columns(layout, tile);
}

// Rows [first_ffn, first_ffn + ffn) of gate or up: they lie together in the checkpoint.
Status BlobBuilder::fill_rows(const SourceTensor& tensor, DType to, int64_t cols, const ExpertTile& tile,
                              int64_t values, int64_t scales) {
  const int64_t row = source_bytes(tensor, cols);
  source_.resize(static_cast<size_t>(tile.ffn * row));
  MOESTRO_RETURN_IF_ERROR(checkpoint_.read(tensor, static_cast<uint64_t>(tile.first_ffn * row), source_));
  return fill_part(
      tensor, *tensor.dtype, to, tile.ffn, cols, [&](int64_t r) { return source_.data() + r * row; },
      piece_.data() + values, piece_.data() + scales);
}

// A tile needs a few columns of every row of down. They are read for as many tiles at once as the scratch memory takes.
Status BlobBuilder::load_band(const SourceTensor& tensor, const ExpertLayout& layout, const ExpertTile& tile) {
  if (band_.tensor == &tensor && tile.first_ffn + tile.ffn <= band_.first + band_.columns) return Status::ok();
  const DType from = *tensor.dtype;
  const bool widened = is_blocks(from) && from != layout.formats().down;  // a tile may begin within a block
  const int64_t hidden = layout.hidden(), ffn = layout.ffn(), block = block_shape(from).columns;
  const int64_t step = round_up(layout.tile_ffn(), block);
  band_.dtype = widened ? DType::kF32 : from;
  const int64_t fitting =
      static_cast<int64_t>(scratch_bytes_max_) / (hidden * row_bytes(band_.dtype, step)) * step;
  band_.tensor = &tensor;
  band_.first = tile.first_ffn / block * block;
  const int64_t least = tile.first_ffn + tile.ffn - band_.first;
  band_.columns = std::min(ffn - band_.first, round_up(std::max(fitting, least), block));
  const auto row = static_cast<size_t>(row_bytes(band_.dtype, band_.columns)),
             source_row = static_cast<size_t>(source_bytes(tensor, band_.columns));
  band_.bytes.resize(static_cast<size_t>(hidden) * row);
  if (band_.columns == ffn && !widened) return checkpoint_.read(tensor, 0, band_.bytes);
  for (int64_t h = 0; h < hidden; ++h) {
    const std::span<std::byte> to = std::span(band_.bytes).subspan(static_cast<size_t>(h) * row, row);
    const auto at = static_cast<uint64_t>(h * source_bytes(tensor, ffn) + source_bytes(tensor, band_.first));
    source_.resize(source_row);
    MOESTRO_RETURN_IF_ERROR(checkpoint_.read(tensor, at, widened ? std::span(source_) : to));
    if (widened)
      MOESTRO_RETURN_IF_ERROR(
          convert_row(tensor, from, source_.data(), DType::kF32, band_.columns, to.data(), nullptr));
  }
  return Status::ok();
}

Status BlobBuilder::fill_columns(const ExpertLayout& layout, const ExpertTile& tile) {
  const auto row = [&](int64_t h) {
    return band_.bytes.data() + h * row_bytes(band_.dtype, band_.columns) +
           row_bytes(band_.dtype, tile.first_ffn - band_.first);
  };
  return fill_part(*band_.tensor, band_.dtype, layout.formats().down, layout.hidden(), tile.ffn, row,
                   piece_.data() + tile.down, piece_.data() + tile.down_scales);
}

template <class SourceRow>
Status BlobBuilder::fill_part(const SourceTensor& tensor, DType from, DType to, int64_t rows, int64_t cols,
                              const SourceRow& source_row, std::byte* values, std::byte* parameters) {
  if (to == DType::kBF16In12) {
    wide_.resize(static_cast<size_t>(rows * cols));
    for (int64_t r = 0; r < rows; ++r)
      MOESTRO_RETURN_IF_ERROR(convert_row(tensor, from, source_row(r), DType::kBF16, cols,
                                          reinterpret_cast<std::byte*>(wide_.data() + r * cols), nullptr));
    return bf16_in_12::encode(wide_.data(), rows, cols, values, parameters) ? Status::ok()
                                                                            : has_too_many_exponents(tensor);
  }
  for (int64_t r = 0; r < rows; ++r)
    MOESTRO_RETURN_IF_ERROR(convert_row(tensor, from, source_row(r), to, cols, values + r * row_bytes(to, cols),
                                        parameters + r * parameter_bytes(to, cols)));
  return Status::ok();
}

Status BlobBuilder::convert_row(const SourceTensor& tensor, DType from, const std::byte* source, DType to, int64_t n,
                                std::byte* values, std::byte* scales) {
  bool fits = false;
  if (is_quantised(to)) {
    work_.resize(static_cast<size_t>(n));
    fits = convert_values(from, source, DType::kF32, reinterpret_cast<std::byte*>(work_.data()), n) &&
           quantise_row(work_.data(), n, to, values, reinterpret_cast<uint16_t*>(scales));
  } else {
    fits = convert_values(from, source, to, values, n);
  }
  return fits ? Status::ok() : does_not_fit(tensor, to);
}

}  // namespace moestro::store
