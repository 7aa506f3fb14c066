#include "cuda/upload.h"

#include <algorithm>

#include "cuda/kernels/rewrite.h"
#include "cuda/pinned_pages.h"
#include "cuda/planes.h"
#include "ggml/error.h"

namespace ggml::cuda {
namespace {

/// Float types lie on the card as in the file.
bool is_plain(DType type) {
  const PlaneSpec spec = plane_spec(type);
  return spec.form == ScaleForm::none && spec.stored == type;
}

/// Puts a piece of a weight that has landed where it belongs. `begin`: its first byte in the file's form.
void place(const WeightRows& rows, std::size_t begin, std::size_t bytes, const std::byte* landed, std::byte* dst,
           cudaStream_t stream) {
  if (is_plain(rows.type)) {
    CUDA_CHECK(cudaMemcpyAsync(dst + begin, landed, bytes, cudaMemcpyDeviceToDevice, stream));
    return;
  }
  const TypeInfo& info = type_info(rows.type);
  const auto block = static_cast<std::size_t>(info.block_bytes);
  const int units = info.block_weights / kUnit;
  const PlaneOffsets offsets = plane_offsets(rows.type, rows.shape);
  auto* planes = reinterpret_cast<std::uint8_t*>(dst);
  RewriteArgs args;
  args.blocks = reinterpret_cast<const std::uint8_t*>(landed);
  args.first_unit = static_cast<std::int64_t>(begin / block) * units;
  args.n_units = static_cast<std::int64_t>(bytes / block) * units;
  args.codes = planes + offsets.codes;
  args.high = planes + offsets.high;
  args.scales = planes + offsets.scales;
  args.supers = planes + offsets.supers;
  launch_rewrite(rows.type, args, stream);
}

/// Copies of which a part is pinned are refused: one for each side of a border.
void copy_in_pieces(std::byte* to, std::span<const std::byte> from, std::span<const std::byte> pages,
                    cudaStream_t stream) {
  const std::byte* const borders[] = {pages.data(), pages.data() + pages.size(), from.data() + from.size()};
  const std::byte* at = from.data();
  for (const std::byte* border : borders) {
    const std::byte* const end = std::clamp(border, at, from.data() + from.size());
    if (end == at) continue;
    const auto bytes = static_cast<std::size_t>(end - at);
    CUDA_CHECK(cudaMemcpyAsync(to, at, bytes, cudaMemcpyHostToDevice, stream));
    to += bytes;
    at = end;
  }
}

}  // namespace

bool can_upload(DType type) noexcept {
  return is_plain(type) || can_rewrite(type);
}

void Upload::rows(const WeightRows& rows, std::byte* dst, std::byte* landing, cudaStream_t copies,
                  cudaStream_t rewrites) {
  TANDEM_ASSERT(can_upload(rows.type), "the device was asked whether it takes the type");
  const auto block = static_cast<std::size_t>(type_info(rows.type).block_bytes);
  const std::size_t piece = kPlaceBytes / block * block;
  const std::size_t first = rows.offset(), end = first + rows.bytes();
  const std::span<const std::byte> pages = whole_pages({rows.src, tensor_bytes(rows.type, rows.shape)});
  for (std::size_t at = first; at < end; at += piece) {
    const std::size_t bytes = std::min(piece, end - at);
    Place& p = places_[next_];
    std::byte* landed = landing + next_ * kPlaceBytes;
    next_ = (next_ + 1) % kPlaces;
    if (p.used) p.taken.hold(copies);
    copy_in_pieces(landed, {rows.src + at, bytes}, pages, copies);
    p.landed.record(copies);
    p.landed.hold(rewrites);
    place(rows, at, bytes, landed, dst, rewrites);
    p.taken.record(rewrites);
    p.used = true;
  }
}

}  // namespace ggml::cuda
